"""Compiling and caching of native kernels."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, checked, forks

from user_dir.attention import cpu as attention
from user_dir.entmax import cpu, native

TRY = """
import torch
from user_dir.entmax import entmax
from user_dir.entmax import cpu, reference, op
torch.manual_seed(1)
alpha = torch.tensor([1.05, 1.5, 1.7, 2.0, 3.0]).view(5, 1, 1)
for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-13)):
    for n in (1, 7, 33, 200):
        scores = (3 * torch.randn(3, 5, 4, n)).to(dtype)
        a = alpha.to(dtype) if n > 7 else alpha.to(dtype).clamp(max=2)
        difference = (entmax(scores, a) - reference.entmax_forward(scores, a))[:, :4].abs().max()
        assert difference < tolerance, (dtype, n, difference)
print("native" if op._native("cpu") is cpu else "reference")
"""


def use(cache, **environment):
    """Use the op in a new process that caches its builds in ``cache``."""
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(cache), "ENTMAX_BACKEND": "", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", TRY],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def backend():
    """These tests choose it themselves."""


@pytest.fixture
def use_in_fork(tmp_path, monkeypatch):
    """The same, more quickly, in a fork of a process that has imported torch; gives stdout and stderr."""

    def use_in_fork(cache, program=TRY, **environment):
        for name, value in {"TORCH_EXTENSIONS_DIR": str(cache), "ENTMAX_BACKEND": "", **environment}.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "try.py"
        path.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{program}")
        done = checked(forks().run(path, anew="nightly"), True)
        return done.stdout.strip(), done.stderr

    return use_in_fork


def compiler(folder, script):
    """A replacement for the compiler."""
    path = folder / "c++"
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return str(path)


def result(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.strip(), err


def kept(cache):
    return sorted(path.name for path in (cache / "adaptively_sparse_transformer").iterdir())


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_concurrent_first_uses_then_a_corrupt_file_and_another_processor(content, tmp_path):
    def used():
        return use(tmp_path, ATEN_CPU_CAPABILITY="avx2")

    assert [result(process)[0] for process in (used(), used())] == ["native"] * 2
    (library,) = kept(tmp_path)
    built = tmp_path / "adaptively_sparse_transformer" / library
    before = built.stat().st_mtime_ns
    assert result(used())[0] == "native" and built.stat().st_mtime_ns == before
    built.write_bytes(content)
    assert result(used())[0] == "native"
    assert kept(tmp_path) == [library] and built.stat().st_size > 1000
    assert result(use(tmp_path, ATEN_CPU_CAPABILITY="default"))[0] == "native"
    assert len(kept(tmp_path)) == 2


def test_a_new_cache_is_private_and_what_was_cut_is_built_again(tmp_path, monkeypatch):
    built = []

    def build(source, scratch, with_torch):
        assert scratch.stat().st_mode & 0o777 == 0o700
        return Path(shutil.copy(native.cache_folder() / cpu.kernels._name(), scratch))

    assert cpu.kernels.available()
    monkeypatch.setattr(native, "_build", lambda *arguments: built.append(build(*arguments)) or built[-1])
    new = tmp_path / "new" / "kernel.so"
    before = os.umask(0)
    try:
        for _ in range(2):
            native._load(new, new, with_torch=False)
        cut = new.read_bytes()[:-5000]
        new.unlink()  # it is in use
        new.write_bytes(cut)
        native._load(new, new, with_torch=False)
    finally:
        os.umask(before)
    assert new.parent.stat().st_mode & 0o777 == 0o700 and len(built) == 2


def test_without_a_working_compiler_the_reference_is_used_with_one_warning(tmp_path, use_in_fork):
    failing = compiler(tmp_path, 'echo "cpu.cpp:1: error: out of cheese" >&2\nexit 1\n')
    out, err = use_in_fork(tmp_path / "cache", CXX=failing)
    assert out == "reference" and kept(tmp_path / "cache") == []
    assert err.count("cannot build the native kernel") == 1 and "error: out of cheese" in err


@pytest.mark.parametrize("copied", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_cache_that_is_not_writable(copied, tmp_path, use_in_fork):
    """Instead of being compiled, which takes long, the library is copied from the cache of these tests."""
    (tmp_path / "file").write_text("")
    instead = {}
    if copied:
        assert cpu.kernels.available()
        library = native.cache_folder() / cpu.kernels._name()
        script = f'while [ "$1" != -o ]; do shift; done\ntouch {tmp_path}/ran\nexec cp {library} "$2"\n'
        instead["CXX"] = compiler(tmp_path, script)
    assert use_in_fork(tmp_path / "file", **instead)[0] == "native"
    assert (tmp_path / "ran").exists() == copied


def test_reference_does_not_build(tmp_path, use_in_fork):
    program = TRY[: TRY.index("print(")]  # which asks for the kernel
    use_in_fork(tmp_path / "cache", program, ENTMAX_BACKEND="reference", CXX="no-such-compiler")
    assert not (tmp_path / "cache").exists()


def test_a_library_has_another_name_if_a_header_changes(tmp_path):
    sources = Path(native.__file__).parents[1]
    for folder in ("entmax", "attention"):
        shutil.copytree(sources / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.py"))
    copied = native.NativeKernels(tmp_path / "attention/cpu_attention.cpp")
    before = copied._name()
    assert before == attention.kernels._name()
    header = tmp_path / "attention/tile.h"
    header.write_text(header.read_text() + "// changed\n")
    assert copied._name() != before
