"""Extreme scores, α's and gradients within their dtypes, for each implementation."""

import importlib

import pytest
import torch
from helpers import HALF_TYPES, assert_within, each_once, entmax_oracle

from user_dir.entmax import entmax, reference

# Triton's interpreter computes with numpy, which warns about infinities.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INF, NAN = float("inf"), float("nan")
DTYPES = (torch.float32, *HALF_TYPES)
NEAR_ONE = [1 + 1e-7, *(1 + 2.0**-k for k in (12, 16, 20, 23, 30, 52))]
ALPHAS = torch.tensor(
    [1.0, *NEAR_ONE, *(1 + 2.0**-k for k in (9, 6, 3, 1)), 2 - 2.0**-23, 2 - 2.0**-52, 2.0],
    dtype=torch.float64,
).view(-1, 1, 1)


@pytest.fixture(params=("reference", "cpu", "triton"))
def backend(request):
    """The implementing module."""
    if request.param == "triton":
        pytest.importorskip("triton")
    return importlib.import_module(f"user_dir.entmax.{request.param}")


def run(backend, scores, alpha, grad, need_alpha=True):
    """Weights, and the gradients of scores and α."""
    device = "cuda" if backend.__name__.endswith("triton") and torch.cuda.is_available() else "cpu"
    scores, alpha, grad = (tensor.to(device) for tensor in (scores, alpha, grad))
    weights = backend.entmax_forward(scores, alpha)
    dz, da = backend.entmax_backward(weights, alpha, grad, need_alpha=need_alpha)
    return weights.cpu(), dz.cpu(), da.cpu() if need_alpha else da


def extreme_rows(dtype, n=9):
    """Rows of extreme values of a dtype; the last but one is entirely masked."""
    kind = torch.finfo(dtype)
    big, normal, least = kind.max, kind.smallest_normal, kind.smallest_normal * kind.eps
    rows = torch.zeros(12, n, dtype=torch.float64)
    rows[0] = big
    rows[1] = -big
    rows[2] = torch.tensor([big, -big, 0.0]).repeat(n // 3)
    rows[3] = torch.tensor([-big, -INF, -INF]).repeat(n // 3)
    rows[4] = -INF
    rows[4, 2] = big
    rows[5, 3] = big
    rows[6] = 0.3
    rows[7] = normal * torch.linspace(0, 1, n)
    rows[8] = least * torch.arange(n)
    rows[9] = torch.linspace(-1, 1, n)
    rows[10] = -INF
    rows[11, ::2] = -normal
    return rows.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_scores(dtype, backend):
    rows = extreme_rows(dtype)
    scores = rows.expand(len(ALPHAS), *rows.shape).contiguous()
    grad = torch.randn_like(scores)
    weights, dz, da = run(backend, scores, ALPHAS, grad)

    # close to α = 1, where bisection cancels, use the limit: the error of weights is at most about ε log² p
    expected = entmax_oracle(scores, torch.where(ALPHAS < 1.001, 1.0, ALPHAS))
    limit = torch.where(ALPHAS < 1.001, 8 * (ALPHAS - 1), 0.0)
    # half a unit in the last place; the interpreter truncates bfloat16
    rounding = torch.finfo(dtype).eps * (0.5 if dtype != torch.bfloat16 else 1.0)
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert_within(weights, expected, rounding * expected + least + 1e-6 + limit, "weights")
    assert (weights[:, 10] == 0).all() and (dz[:, 10] == 0).all()
    assert (weights[scores == -INF] == 0).all() and (dz[scores == -INF] == 0).all()

    # The backward pass starts from the rounded weights.
    exact_dz, exact_da = reference.entmax_backward(weights.double(), ALPHAS, grad.double())
    tolerance = rounding * exact_dz.abs() + least + 1e-5 * grad.double().abs().amax(-1, keepdim=True)
    assert_within(dz, exact_dz, tolerance, "gradient of scores")
    assert_within(da, exact_da, 1e-4 * len(rows) * grad.double().abs().max(), "gradient of α")


@pytest.mark.parametrize(
    "case",
    each_once(
        alpha=(1.0, 1 + 2.0**-20, 1.3, 1.5, 2.0), value=(INF, -INF, NAN), dtype=(torch.float32, torch.float16)
    ),
)
def test_an_overflow_in_the_gradient_propagates_within_its_row_only(case, backend):
    alpha, value, dtype = case.values()
    scores = torch.tensor([[0.1, 0.0, -0.2, -90.0], [0.3, 0.2, -INF, 0.0], [-INF] * 4]).to(dtype)
    grad = torch.randn(3, 4).to(dtype)
    grad[0, 1] = value
    _, dz, da = run(backend, scores, torch.tensor(alpha), grad)
    assert not dz[0, :3].isfinite().any() and not da.isfinite()
    assert dz[1].isfinite().all() and (dz[2] == 0).all()


@pytest.mark.parametrize("case", each_once(alpha=(1.0, 1.3, 1.5, 2.0), dtype=DTYPES))
def test_a_nan_among_the_weights_propagates_with_any_gradient(case, backend):
    alpha, dtype = case.values()
    scores = torch.tensor([[0.0, NAN, 1.0], [INF, 0.0, 1.0], [0.3, 0.2, 0.0]]).to(dtype)
    for grad in (torch.randn(3, 3).to(dtype), torch.zeros(3, 3, dtype=dtype)):
        for needed in (True, False):
            weights, dz, da = run(backend, scores, torch.tensor(alpha), grad, needed)
            assert weights[:2].isnan().all() and dz[:2].isnan().all() and dz[2].isfinite().all()
            assert da is None if not needed else da.isnan()


def test_a_gradient_too_large_for_half_precision_is_infinite(backend):
    # for sparsemax w is 1, and a score's gradient is g − ḡ: here up to twice the largest float16
    greatest = torch.finfo(torch.float16).max
    grad = torch.tensor([[greatest, -greatest, -greatest, -greatest]], dtype=torch.float16)
    _, dz, da = run(backend, torch.zeros(1, 4, dtype=torch.float16), torch.tensor(2.0), grad)
    assert dz[0, 0] == INF and dz[0, 1:].isfinite().all() and da.isfinite()


@pytest.mark.parametrize("alpha", (1.0, 1.001, 1.5, 1.7, 2.0))
def test_the_gradient_is_exactly_linear_in_the_scale_of_the_loss(alpha, backend):
    scores, grad = 2 * torch.randn(5, 20), torch.randn(5, 20)
    _, *plain = run(backend, scores, torch.tensor(alpha), grad)
    _, *scaled = run(backend, scores, torch.tensor(alpha), 2.0**40 * grad)
    for one, other in zip(plain, scaled):
        assert torch.equal(2.0**40 * one, other)


@pytest.mark.parametrize("inside", HALF_TYPES)
@pytest.mark.parametrize("alpha", (1.0, 1.0001, 1.5))
@pytest.mark.parametrize("choice", ("reference", "native"))
def test_autocast_changes_nothing(choice, alpha, inside, monkeypatch):
    monkeypatch.setenv("ENTMAX_BACKEND", choice)
    for dtype in (torch.float32, inside):
        scores, grad = (4 * torch.randn(8, 30)).to(dtype), torch.randn(8, 30).to(dtype)
        results = []
        for enabled in (False, True):
            z, a = scores.clone().requires_grad_(), torch.tensor(alpha, requires_grad=True)
            with torch.autocast("cpu", inside, enabled=enabled):
                weights = entmax(z, a)
                weights.backward(grad)
            assert weights.dtype == dtype and a.grad.dtype == torch.float32
            results.append((weights, z.grad, a.grad))
        assert all(torch.equal(one, other) for one, other in zip(*results))
