"""The Triton kernel of the α-entmax loss; without a GPU it runs in Triton's interpreter."""

from contextlib import nullcontext

import pytest
import torch
from no_gpu import compiled_apart
from strict_interpreter import strict

from user_dir.entmax import reference
from user_dir.entmax import triton as kernels
from user_dir.entmax.reference import LossSettings as Settings

INF, NAN = float("inf"), float("nan")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def backend():
    """Not the implementations of the other tests."""


def both(scores, target, alpha, smoothing, grad):
    """Losses, support and gradient, by the kernel in the scores' dtype and by plain torch in float64."""
    arguments = (target, Settings(alpha, smoothing, -1))
    expected = reference.loss_forward(scores.double(), *arguments)
    expected_grad = reference.loss_backward(scores.double(), *arguments, expected[2], grad.double())
    arguments = (target.to(DEVICE), Settings(alpha, smoothing, -1))
    actual = kernels.loss_forward(scores.to(DEVICE), *arguments)
    actual_grad = kernels.loss_backward(scores.to(DEVICE), *arguments, actual[2], grad.to(DEVICE))
    return (*actual[:2], actual_grad), (*expected[:2], expected_grad)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize(("alpha", "smoothing"), [(1.01, 0.1), (1.25, 0.0), (1.5, 0.1), (2.0, 0.0)])
@pytest.mark.parametrize("n", (150, *(pytest.param(n, marks=pytest.mark.nightly) for n in (5, 5000))))
def test_agrees_with_the_reference(monkeypatch, n, alpha, smoothing, dtype):
    monkeypatch.setattr(kernels, "TILE", 64)
    scores = (2 * torch.randn(4, n, dtype=torch.float64)).to(dtype)
    scores[0, n // 2 :] = 0.0 if smoothing else -INF
    target = torch.tensor([0, n - 1, -1, 1])
    actual, expected = both(scores, target, alpha, smoothing, torch.randn(4, dtype=dtype))
    tolerance = 2e-6 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(actual[0].cpu().double(), expected[0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(actual[2].cpu().double(), expected[2], rtol=tolerance, atol=tolerance)
    assert torch.equal(actual[1].cpu(), expected[1])


def test_masked_infinite_and_nan_rows(monkeypatch):
    monkeypatch.setattr(kernels, "TILE", 64)
    scores = torch.randn(5, 100)
    scores[0] = -INF
    scores[1, 70] = NAN
    scores[2, 70] = INF
    scores[3, 70] = NAN
    target = torch.tensor([0, 0, 0, -1, 5])
    (losses, support, grad), (_, _, expected) = both(scores, target, 1.5, 0.0, torch.ones(5))
    assert losses[0] == INF and losses[1:3].isnan().all() and losses[3] == 0 and losses[4].isfinite()
    assert support[:4].tolist() == [0, 0, 0, 0]
    assert grad[1:3].isnan().all() and not grad[[0, 3]].any()
    torch.testing.assert_close(grad[4].cpu().double(), expected[4], rtol=0, atol=2e-6)


def test_a_target_that_is_not_there_gives_nan(monkeypatch):
    monkeypatch.setattr(kernels, "TILE", 64)
    scores, target = torch.randn(5, 70, device=DEVICE), torch.tensor([3, 70, -2, 2**40, -1], device=DEVICE)
    with nullcontext() if DEVICE == "cuda" else strict(monkeypatch):
        losses, support, solutions = kernels.loss_forward(scores, target, Settings(1.5, 0.1, -1))
        grad = kernels.loss_backward(
            scores, target, Settings(1.5, 0.1, -1), solutions, torch.ones_like(losses)
        )
    assert losses.isnan().tolist() == [False, True, True, True, False]
    assert support[1:].tolist() == [0] * 4 and losses[4] == 0 and not grad[4].any()
    assert grad.isfinite().all(1).tolist() == [True, False, False, False, True] and grad[1:4].isnan().all()


def compile_calls(device, calls):
    """For each call (dtype, n, α), the kernels that had to be compiled."""
    compiled = []
    for dtype, n, alpha in calls:
        device.loaded.clear()
        scores = torch.zeros(2, n, dtype=getattr(torch, dtype))
        target = torch.tensor([0, 1])
        *_, solutions = kernels.loss_forward(scores, target, Settings(alpha, 0.1, -1))
        kernels.loss_backward(scores, target, Settings(alpha, 0.1, -1), solutions, scores[:, 0])
        compiled.append(list(device.loaded))
    return compiled


@pytest.mark.nightly
@pytest.mark.parametrize("capability", (80, 90))
def test_compiles_once_per_dtype(tmp_path, capability):
    calls = [["float32", 100, 1.5], ["float32", 32000, 1.25], ["float64", 5000, 1.5]]
    both = ["_loss_forward", "_loss_backward"]
    assert compiled_apart(__file__, capability, calls, tmp_path) == [both, [], both]
