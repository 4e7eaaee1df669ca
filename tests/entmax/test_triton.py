"""The Triton kernels, run on a GPU or in Triton's interpreter, and compiled without a GPU."""

import pytest
import torch
from no_gpu import compiled_apart
from strict_interpreter import strict

pytest.importorskip("triton")

from user_dir.entmax import reference
from user_dir.entmax import triton as kernels

# The interpreter computes with numpy, which warns about infinities that the kernels handle.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF = float("inf")


@pytest.fixture
def backend():
    """Not used: these tests call the kernels directly."""


def on_device(*tensors):
    return [tensor.to(DEVICE) for tensor in tensors]


def forward(scores, alpha, dim=-1):
    return kernels.entmax_forward(*on_device(scores, alpha), dim).cpu()


@pytest.mark.parametrize("value", (0.5, -1.0, INF, -INF, float("nan")))
def test_alpha_out_of_range_gives_nan(value):
    # Raising an error would synchronise with the device at every call.
    scores = torch.randn(3, 4, 5)
    weights = forward(scores, torch.tensor([1.5, value, 1.0]).view(3, 1, 1))
    assert weights[1].isnan().all() and weights[[0, 2]].isfinite().all()


# ---------------------------------------------------------------------- compilation without a GPU


def compile_calls(device, calls):
    """For each call (dtype, shape, α, offset, need_alpha), the kernels that had to be compiled."""
    compiled = []
    for dtype, shape, alpha, offset, need_alpha in calls:
        device.loaded.clear()
        launches = device.launches
        size = torch.Size(shape).numel()
        scores = torch.zeros(offset + size, dtype=getattr(torch, dtype))[offset:].view(shape)
        alpha = torch.tensor(alpha)
        kernels.entmax_backward(kernels.entmax_forward(scores, alpha), alpha, scores, -1, need_alpha)
        assert device.launches == launches + 2
        compiled.append(list(device.loaded))
    return compiled


RESIDENT = ["_forward_resident", "_backward_resident"]
TILED = ["_forward_tiled", "_backward_tiled"]


@pytest.mark.nightly
@pytest.mark.parametrize("capability", (80, 90))
def test_every_kernel_compiles(tmp_path, capability):
    lengths = [2**k for k in range(4, 13)]
    calls = [["float32", (1, 1, 2, n), 1.5, 0, True] for n in lengths]
    for dtype in ("float16", "bfloat16", "float64"):
        calls += [[dtype, (1, 1, 2, n), 1.5, 0, True] for n in (16, 256, 4096)]
    expected = [RESIDENT] * len(calls)
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        calls.append([dtype, (1, 1, 2, 5000), 1.5, 0, True])
        expected.append(TILED)
    calls += [["float32", (1, 1, 2, 32), 1.5, 0, False], ["float32", (1, 1, 2, 5000), 1.5, 0, False]]
    expected += [RESIDENT[1:], TILED[1:]]
    assert compiled_apart(__file__, capability, calls, tmp_path) == expected


@pytest.mark.skipif(DEVICE == "cuda", reason="watches the interpreter")
@pytest.mark.parametrize("resident", (40, pytest.param(0, marks=pytest.mark.nightly)))
def test_nothing_is_right_by_chance(monkeypatch, resident):
    monkeypatch.setattr(kernels, "RESIDENT", resident)
    monkeypatch.setattr(kernels, "TILE", 16)
    alpha = torch.tensor([1.0, 1.4, 3.0]).view(-1, 1, 1)
    scores, grad = torch.randn(2, 2, 3, 3, 21)
    scores[0, 0, 1, 4] = float("nan")
    with strict(monkeypatch):
        weights = kernels.entmax_forward(scores, alpha)
        actual = (weights, *kernels.entmax_backward(weights, alpha, grad))
    expected = (weights, *reference.entmax_backward(weights, alpha, grad))
    torch.testing.assert_close(weights, reference.entmax_forward(scores, alpha), equal_nan=True)
    torch.testing.assert_close(actual, expected, equal_nan=True)
