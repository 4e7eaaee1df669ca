"""Compile and cache native kernels, per instruction set, and per PyTorch version if they need PyTorch."""

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
from typing import Any

import torch
from torch import Tensor

# By PyTorch's name. Code for -march=native might not run on other processors that share the cache.
INSTRUCTIONS = {
    "AVX512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"],
    "AVX2": ["-mavx2", "-mfma"],
}
FLAGS = ["-O3", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
FLAGS += ["-fwrapv"]  # exponents in lanes whose value is discarded may overflow

HEADERS = Path(__file__).parent  # lanes.h and rows.h, which sources in any folder include

POINTER, INTEGER = ctypes.c_void_p, ctypes.c_int64

logger = logging.getLogger(__name__)


class NativeKernels(dict):
    """The functions of a C++ file by (name, dtype); the file is compiled at its first use on a machine.

    They take numbers, and addresses of data. A dtype is PyTorch's.

    Args:
        source: ``FOLDER/FILE.cpp`` with a function ``FOLDER_NAME_DTYPE`` for each name and dtype.
        with_torch: the file needs PyTorch.
        signatures: for each name, its return type and the list of its argument types, from ctypes.
    """

    def __init__(self, source: Path, *, with_torch: bool = True, **signatures: tuple):
        super().__init__()
        self.source, self.with_torch, self.signatures = source, with_torch, signatures

    def available(self) -> bool:
        """Whether the functions can be called; if not, the first call warns."""
        return self._library is not None

    def __missing__(self, wanted: tuple[str, object]) -> Any:
        assert self._library is not None, "this implementation was selected without a kernel"
        name, dtype = wanted
        suffix = str(dtype).removeprefix("torch.")
        function = getattr(self._library, f"{self.source.parent.name}_{name}_{suffix}")
        function.restype, function.argtypes = self.signatures[name]
        self[wanted] = function
        return function

    @functools.cached_property
    def _library(self) -> ctypes.CDLL | None:
        """None, after a warning, if the file cannot be compiled."""
        try:
            return _load(cache_folder() / self._name(), self.source, self.with_torch)
        except (OSError, RuntimeError, ImportError, subprocess.SubprocessError) as error:
            lines = str(error).strip().split("\n")
            reason = next((line for line in lines if "error:" in line), lines[0])
            logger.warning(
                "cannot build the native kernel of %s (%s); using a slower implementation",
                *(self.source.parent.name, reason),
            )
            return None

    def _name(self) -> str:
        """A file name that is unique to the source, the instruction set and PyTorch's version."""
        system = (platform.system(), platform.machine(), *platform.libc_ver())
        parts = [*_flags(), os.environ.get("CXX", ""), *system]
        if self.with_torch:
            parts.append(torch.__version__)
        headers = (*self.source.parent.glob("*.h"), *HEADERS.glob("*.h"))
        files = (self.source, *sorted(set(headers), key=lambda header: header.name))
        text = b"".join(file.read_bytes() for file in files) + "\n".join(parts).encode()
        digest = hashlib.sha256(text).hexdigest()
        return f"{self.source.parent.name}_{self.source.stem}_{digest[:16]}.so"


def addresses(*tensors: Tensor | None) -> list[int | None]:
    """Addresses of the data of tensors; None, a null pointer, for None."""
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _flags() -> list[str]:
    return FLAGS + INSTRUCTIONS.get(capability(), [])


def capability() -> str:
    """PyTorch's name of the vector instructions that it computes with."""
    return torch.backends.cpu.get_cpu_capability()


def asked_backend() -> str:
    """What the environment variable ENTMAX_BACKEND asks for: ``native``, ``reference``, or nothing.

    Raises:
        ValueError: it has another value.
    """
    asked = os.environ.get("ENTMAX_BACKEND", "")
    if asked not in ("", "native", "reference"):
        raise ValueError(f"ENTMAX_BACKEND={asked} is not valid: use native or reference, or unset it")
    return asked


def cache_folder() -> Path:
    """The folder of compiled kernels; PyTorch's TORCH_EXTENSIONS_DIR overrides it."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "adaptively_sparse_transformer"


def _load(library: Path, source: Path, with_torch: bool) -> ctypes.CDLL:
    """Open the library, compiling it if needed. Concurrent first users may each compile it."""
    cache, what = library.parent, source.parent.name
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = library.read_bytes() if library.is_file() else b""
        if content[-32:] != hashlib.sha256(content[:-32]).digest():  # loading a truncated file is fatal
            logger.info("building the native kernel of %s in %s (only once)", what, cache)
            with tempfile.TemporaryDirectory(prefix="build_", dir=cache) as folder:
                built = _build(source, Path(folder), with_torch)
                content = built.read_bytes()
                built.write_bytes(content + hashlib.sha256(content).digest())
                os.replace(built, library)
        return ctypes.CDLL(str(library))
    except OSError:  # the cache folder is not writable
        with tempfile.TemporaryDirectory(prefix="entmax_") as folder:  # for this process only
            return ctypes.CDLL(str(_build(source, Path(folder), with_torch)))


def _build(source: Path, folder: Path, with_torch: bool) -> Path:
    """Compile into a folder. Raises RuntimeError on failure."""
    # cpp_extension.load() cannot link if PyTorch's path contains a space.
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if shutil.which(compiler[0]) is None:
        raise RuntimeError(f"{compiler[0]} not found")
    library = folder / f"{source.parent.name}_{source.stem}.so"
    command = [*compiler, "-std=c++20", "-shared", "-fPIC", f"-I{HEADERS}", *_flags()]
    command += [str(source), "-o", str(library)]
    if with_torch:
        from torch.utils.cpp_extension import include_paths, library_paths  # imported here because it is slow

        command += [word for path in include_paths() for word in ("-isystem", path)]
        command += [f"-L{path}" for path in library_paths()] + ["-lc10", "-ltorch_cpu"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return library
