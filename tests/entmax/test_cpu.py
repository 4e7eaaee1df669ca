"""The native CPU kernel: masks read in place, any number of threads, and its compilation."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import checked, forks
from helpers import covering, each_once

from user_dir.entmax import attention_weights, build, cpu, entmax, has_native, selection
from user_dir.entmax.masks import hide

ROOT = Path(__file__).resolve().parents[2]
ALPHAS = torch.tensor([1.0, 1.001, 1.3, 1.5, 1.9, 2.0, 3.0]).view(7, 1, 1)
INF = float("inf")


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    monkeypatch.setenv("ENTMAX_BACKEND", "native")


def padding(kind, n):
    """A padding mask (3, n), at the end or beginning of sentences; one sentence is all padding."""
    lengths = torch.tensor([n, (n + 1) // 2, 0])
    mask = torch.arange(n) >= lengths[:, None]
    return {"right": mask, "left": mask.flip(1), "none": None}[kind]


MASKS = {
    "pad": ("none", "left", "right"),
    "added": ("none", "float", "bool"),
    "dtype": (torch.float32, torch.float64, torch.bfloat16),
}


@pytest.mark.parametrize(
    "case",
    covering(keys=((1, 1), (1, 9), (5, 5), (19, 19), (3, 40), (40, 40)), causal=(False,), **MASKS)
    + covering(keys=((1, 1), (5, 5), (40, 40)), causal=(True,), **MASKS),
)
def test_masks_read_in_place_equal_masks_applied(case):
    (queries, n), dtype = case["keys"], case["dtype"]
    added = {"none": None, "float": torch.randn(queries, n), "bool": torch.rand(queries, n) < 0.3}[
        case["added"]
    ]
    if case["added"] == "float":
        added[torch.rand(queries, n) < 0.3] = -INF
        if dtype == torch.bfloat16:  # the kernel does not round the sum
            added = torch.where(added > -INF, 0.0, added)
    masks = (padding(case["pad"], n), added, case["causal"])
    scores = (2 * torch.randn(3, 7, queries, n)).to(dtype).requires_grad_()
    grad = torch.randn(3, 7, queries, n).to(dtype)
    alpha = ALPHAS.clone().requires_grad_()
    in_place = attention_weights(scores, alpha, *masks)
    applied = entmax(hide(scores, *masks), alpha)
    assert torch.equal(in_place, applied)
    gradients = [torch.autograd.grad(weights, (scores, alpha), grad) for weights in (in_place, applied)]
    for actual, expected in zip(*gradients):
        assert actual.isfinite().all() and torch.equal(actual, expected)


def test_a_learned_mask_gets_its_gradient():
    scores = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z, b: attention_weights(z, 1.3, None, b), (scores, bias))


def test_masks_that_broadcast():
    scores = torch.randn(2, 3, 4, 4)
    row = torch.tensor([[0.0, -INF, 1.0, 0.0]])
    assert torch.equal(attention_weights(scores, 1.3, None, row), entmax(scores + row, 1.3))
    one = torch.tensor([[False, True, False, False]])
    assert torch.equal(attention_weights(scores, 1.3, one), entmax(scores.masked_fill(one, -INF), 1.3))


def test_results_are_bitwise_independent_of_the_number_of_threads():
    scores = 3 * torch.randn(16, 7, 33, 50)
    grad = torch.randn_like(scores)
    results = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            z, alpha = scores.clone().requires_grad_(), ALPHAS.clone().requires_grad_()
            weights = entmax(z, alpha)
            weights.backward(grad)
            results.append((weights, z.grad, alpha.grad))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0]))


@pytest.mark.parametrize("case", each_once(rows=(1, 7, 8, 15, 16, 17, 33), n=(1, 15, 16, 17, 31, 100)))
def test_a_row_does_not_depend_on_its_neighbours(case):
    rows, n = case["rows"], case["n"]
    scores = 2 * torch.randn(rows, n)
    alpha = 1 + torch.rand(rows, 1)
    alone = torch.cat([entmax(scores[i : i + 1], alpha[i]) for i in range(rows)])
    torch.testing.assert_close(entmax(scores, alpha), alone, rtol=0, atol=5e-7)


# --------------------------------------------------------------------------------- compilation and cache

TRY = """
import torch
from user_dir.entmax import entmax
from user_dir.entmax import cpu, reference, selection
torch.manual_seed(1)
alpha = torch.tensor([1.05, 1.5, 1.7, 2.0, 3.0]).view(5, 1, 1)
for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-13)):
    for n in (1, 7, 33, 200):
        scores = (3 * torch.randn(3, 5, 4, n)).to(dtype)
        a = alpha.to(dtype) if n > 7 else alpha.to(dtype).clamp(max=2)
        difference = (entmax(scores, a) - reference.entmax_forward(scores, a))[:, :4].abs().max()
        assert difference < tolerance, (dtype, n, difference)
print("native" if selection._native("cpu") is cpu else "reference")
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
def use_in_fork(tmp_path, monkeypatch):
    """The same, more quickly, in a fork of a process that has imported torch; gives stdout and stderr."""

    def use_in_fork(cache, program=TRY, **environment):
        for name, value in {"TORCH_EXTENSIONS_DIR": str(cache), "ENTMAX_BACKEND": "", **environment}.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "try.py"
        path.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{program}")
        done = checked(forks().run(path, anew=True), True)
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


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder with a library that records being opened, and a replacement for the compiler."""
    folder, marker = tmp_path / "cache", tmp_path / "marker"
    folder.mkdir(mode=0o700)
    planting = f'__attribute__((constructor)) void f(void) {{ fclose(fopen("{marker}", "w")); }}\n'
    for name, body in (("planted", planting), ("honest", "int honest(void) { return 1; }\n")):
        source = tmp_path / f"{name}.c"
        source.write_text("#include <stdio.h>\n" + body)
        subprocess.run(["c++", "-shared", "-fPIC", "-x", "c", source, "-o", tmp_path / name], check=True)
    shutil.copy(tmp_path / "planted", folder / "kernel.so")
    (folder / "kernel.so").chmod(0o755)

    def built(source, scratch, flags):
        assert scratch.stat().st_mode & 0o777 == 0o700
        return Path(shutil.copy(tmp_path / "honest", scratch))

    monkeypatch.setattr(build, "_build", built)
    return folder / "kernel.so"


def opened(library):
    """Whether the planted library ran."""
    marker = library.parents[1] / "marker"
    marker.unlink(missing_ok=True)
    build._load(library, library, [])
    return marker.exists()


def test_a_cached_library_is_used(cache):
    assert opened(cache), "the tests below show nothing"


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_library_writable_by_others_is_replaced(cache, mode):
    cache.chmod(mode)
    assert not opened(cache)
    assert cache.stat().st_mode & 0o777 == 0o755
    assert hasattr(ctypes.CDLL(str(cache)), "honest")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_cache_writable_by_others_is_not_used(cache, mode, caplog):
    cache.parent.chmod(mode)
    assert not opened(cache)
    assert "chmod 700" in caplog.text


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_library_of_another_user_is_not_used(cache, which):
    os.chown(cache if which == "file" else cache.parent, 12345, -1)
    assert not opened(cache)


def test_a_new_cache_is_private(cache, monkeypatch):
    new = cache.parent / "new" / "kernel.so"
    before = os.umask(0)
    try:
        build._load(new, new, [])
    finally:
        os.umask(before)
    assert new.parent.stat().st_mode & 0o777 == 0o700
    assert new.stat().st_mode & 0o777 == 0o755


def test_without_a_compiler_the_reference_is_used_with_one_warning(tmp_path, use_in_fork):
    cache = tmp_path / "cache"
    out, err = use_in_fork(cache, CXX="no-such-compiler")
    assert out == "reference"
    assert (
        err.count("cannot build the native kernel") == 1
        and "no-such-compiler not found" in err
        and "ENTMAX_BACKEND" in err
    )
    assert kept(cache) == []


def test_the_error_of_a_failing_compiler_is_quoted(tmp_path, use_in_fork):
    failing = compiler(tmp_path, 'echo "cpu.cpp:1: error: out of cheese" >&2\nexit 1\n')
    out, err = use_in_fork(tmp_path / "cache", CXX=failing)
    assert out == "reference" and err.count("error: out of cheese") == 1 and kept(tmp_path / "cache") == []


@pytest.mark.parametrize("copied", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_cache_that_is_not_writable(copied, tmp_path, use_in_fork):
    """Instead of being compiled, which takes long, the library is copied from the cache of these tests."""
    (tmp_path / "file").write_text("")
    instead = {}
    if copied:
        assert cpu.kernels.available()
        flags = build.FLAGS + build.INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), [])
        library = build.cache_folder() / build._name(Path(cpu.__file__).with_suffix(".cpp"), flags)
        script = f'while [ "$1" != -o ]; do shift; done\ntouch {tmp_path}/ran\nexec cp {library} "$2"\n'
        instead["CXX"] = compiler(tmp_path, script)
    assert use_in_fork(tmp_path / "file", **instead)[0] == "native"
    assert (tmp_path / "ran").exists() == copied


def test_reference_does_not_build(tmp_path, use_in_fork):
    program = TRY[: TRY.index("print(")]  # which asks for the kernel
    use_in_fork(tmp_path / "cache", program, ENTMAX_BACKEND="reference", CXX="no-such-compiler")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "backend_asked, says", [("fast", "is not valid: use native or reference"), ("native", "unset it")]
)
def test_an_unavailable_backend_is_refused(backend_asked, says, monkeypatch):
    monkeypatch.setenv("ENTMAX_BACKEND", backend_asked)
    monkeypatch.setattr(selection, "_native", lambda device: None)
    for call in (lambda: entmax(torch.zeros(3), 1.5), lambda: has_native("cpu")):
        with pytest.raises(ValueError, match=f"^ENTMAX_BACKEND={backend_asked}.* {says}"):
            call()
