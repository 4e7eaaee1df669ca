"""Compile and cache native kernels, once per processor type and PyTorch version."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Optional

import torch
from torch import Tensor

SHARED = Path(__file__).parent  # headers that all kernels may include
# By the instruction set that PyTorch detected. -march=native would give code that other processors sharing
# the cache may not run.
INSTRUCTIONS = {
    "AVX512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"],
    "AVX2": ["-mavx2", "-mfma"],
}
FLAGS = ["-O3", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
FLAGS += ["-fwrapv"]  # exponents in lanes whose value is discarded may overflow

logger = logging.getLogger(__name__)

POINTER, INTEGER = ctypes.c_void_p, ctypes.c_int64
DTYPES = {torch.float32: "float32", torch.float64: "float64"}


class NativeKernels(dict):
    """The functions of a C++ file by (name, dtype); the file is compiled at its first use on a machine.

    They take numbers, and addresses of tensors (:func:`addresses`).

    Args:
        source: ``FOLDER/FILE.cpp`` with a function ``FOLDER_NAME_DTYPE`` for each name and dtype.
        signatures: for each name, the type that it returns and those that it takes, as ctypes types.
    """

    def __init__(self, source: Path, **signatures: tuple):
        super().__init__()
        self.source, self.signatures = source, signatures

    def built(self) -> bool:
        """Whether the file is compiled already, so that its first use takes no time."""
        return (cache_folder() / _name(self.source, _flags())).is_file()

    def available(self) -> bool:
        """Whether the functions can be called; if not, the first call warns."""
        return self._library is not None

    def __missing__(self, wanted: tuple[str, torch.dtype]) -> Any:
        assert self._library is not None, "this implementation was selected without a kernel"
        name, dtype = wanted
        function = getattr(self._library, f"{self.source.parent.name}_{name}_{DTYPES[dtype]}")
        function.restype, function.argtypes = self.signatures[name]
        self[wanted] = function
        return function

    @functools.cached_property
    def _library(self) -> Optional[ctypes.CDLL]:
        """None, after a warning, if the file cannot be compiled."""
        flags = _flags()
        try:
            return _load(cache_folder() / _name(self.source, flags), self.source, flags)
        except (OSError, RuntimeError, ImportError, subprocess.SubprocessError) as error:
            lines = str(error).strip().split("\n")
            reason = next((line for line in lines if "error:" in line), lines[0])
            logger.warning(
                "cannot build the native kernel of %s (%s); using a slower implementation. Install a C++ "
                "compiler, or set ENTMAX_BACKEND=reference to turn native kernels off",
                self.source.parent.name,
                reason,
            )
            return None


def addresses(*tensors: Optional[Tensor]) -> list[Optional[int]]:
    """Of the data of tensors; None, a null pointer, for None."""
    return [None if each is None else each.data_ptr() for each in tensors]


def _flags() -> list[str]:
    return FLAGS + INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), [])


def cache_folder() -> Path:
    """The folder of compiled kernels; PyTorch's TORCH_EXTENSIONS_DIR overrides it."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "adaptively_sparse_transformer"


def _name(source: Path, flags: list[str]) -> str:
    """A file name that is unique to the source, instruction set and PyTorch version."""
    system = (platform.system(), platform.machine(), *platform.libc_ver())
    parts = [*flags, os.environ.get("CXX", ""), torch.__version__, *system]
    files = [source, *sorted({*SHARED.glob("*.h"), *source.parent.glob("*.h")})]
    text = b"".join(file.read_bytes() for file in files) + "\n".join(parts).encode()
    digest = hashlib.sha256(text).hexdigest()
    return f"{source.parent.name}_{source.stem}_{digest[:16]}.so"


def _load(library: Path, source: Path, flags: list[str]) -> ctypes.CDLL:
    """Open the library, compiling it if needed. Concurrent first users may each compile it."""
    try:
        if _is_ours(library.parent) and _is_ours(library):
            return ctypes.CDLL(str(library))
    except OSError:
        logger.info("building the native kernel of %s in %s (only once)", source.parent.name, library.parent)
    try:
        library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_ours(library.parent):
            with tempfile.TemporaryDirectory(prefix="build_", dir=library.parent) as folder:
                built = _build(source, Path(folder), flags)
                built.chmod(0o755)
                os.replace(built, library)
                return ctypes.CDLL(str(library))
        logger.warning("not using kernels of %s: other users can write to it; chmod 700 it", library.parent)
    except OSError:  # the cache folder is not writable
        pass
    with tempfile.TemporaryDirectory(prefix="entmax_") as folder:  # for this process only
        return ctypes.CDLL(str(_build(source, Path(folder), flags)))


def _is_ours(path: Path) -> bool:
    """Whether a file or folder belongs to the user (or root) and nobody else can write to it.

    Libraries in the cache are executed, so nobody else may be able to place one there.
    """
    if not hasattr(os, "getuid"):  # Windows, where home folders are private
        return path.exists()
    found = path.stat()
    return found.st_uid in (0, os.getuid()) and not found.st_mode & 0o022


def _build(source: Path, folder: Path, flags: list[str]) -> Path:
    """Compile into a folder. Raises RuntimeError on failure."""
    from torch.utils.cpp_extension import include_paths, library_paths  # imported here because it is slow

    # cpp_extension.load() cannot link if PyTorch's path contains a space.
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if shutil.which(compiler[0]) is None:
        raise RuntimeError(f"{compiler[0]} not found")
    library = folder / f"{source.parent.name}_{source.stem}.so"
    command = [*compiler, "-std=c++20", "-shared", "-fPIC", *flags, str(source), "-o", str(library)]
    command += [word for path in include_paths() for word in ("-isystem", path)]
    command += [f"-L{path}" for path in library_paths()] + ["-lc10", "-ltorch_cpu"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return library
