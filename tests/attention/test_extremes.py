"""Attention with extreme but representable scores and gradients, for each implementation."""

import pytest
import torch
from helpers import computed

from user_dir.attention import cpu
from user_dir.attention.dense import dense_attention

# Triton's interpreter computes with numpy, which warns about infinities.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ALPHAS = torch.tensor([1.0, 1 + 2.0**-20, 1.3, 1.7, 2.0]).view(-1, 1, 1)
# Largest error relative to the largest entry; the interpreter truncates bfloat16, while a GPU rounds.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
MASK = torch.zeros(2, 7, dtype=torch.bool)
MASK[1, 5:] = True


@pytest.fixture(params=("dense reference", "dense native", "fused cpu", "fused triton"))
def attend(request, monkeypatch):
    """Attention of queries, keys, values, α and padding, and the gradients of the first four."""
    kind, name = request.param.split()
    monkeypatch.setenv("ENTMAX_BACKEND", "native" if name != "reference" else name)
    device, function = "cpu", dense_attention
    if name == "triton":
        pytest.importorskip("triton")
        from user_dir.attention import triton

        device = "cuda" if torch.cuda.is_available() else "cpu"
        function = triton.KERNEL.compute
    elif kind == "fused":
        function = cpu.KERNEL.compute

    def attend(q, k, v, alpha, mask, grad):
        inputs = [x.to(device).clone().requires_grad_() for x in (q, k, v, alpha)]
        output, _ = computed(function, *inputs, mask.to(device))
        grads = torch.autograd.grad(output, inputs, grad.to(device))
        return [tensor.cpu() for tensor in (output.detach(), *grads)]

    return attend


def inputs(dtype, magnitude=1.0):
    """Queries, keys, values of two sentences; powers of two in queries and keys make scores exact."""
    q = magnitude * 2.0 ** torch.randint(-2, 1, (2, 5, 6, 4))
    k = magnitude * 2.0 ** torch.randint(-2, 1, (2, 5, 7, 4)) * torch.randn(2, 5, 7, 4).sign()
    return q.to(dtype), k.to(dtype), torch.randn(2, 5, 7, 4).to(dtype)


def in_float64(q, k, v, alpha, mask, grad):
    exact = [x.double().requires_grad_() for x in (q, k, v, alpha)]
    output, _ = computed(dense_attention, *exact, mask)
    return [output.detach(), *torch.autograd.grad(output, exact, grad.double())]


@pytest.mark.parametrize(
    "dtype, magnitude", ((torch.float32, 2.0**-10), (torch.float32, 2.0**7), (torch.bfloat16, 2.0**7))
)
def test_small_and_large_scores(dtype, magnitude, attend):
    q, k, v = inputs(dtype, magnitude)
    grad = torch.randn_like(q)
    results = attend(q, k, v, ALPHAS, MASK, grad)
    expected = in_float64(q, k, v, ALPHAS, MASK, grad)
    # λ has the precision of float32 relative to scores of up to 2 magnitude²; terms of α's gradient may
    # cancel
    tolerance = max(TOLERANCE[dtype], 2.0**-26 * magnitude**2)
    for name, actual, exact in zip(("output", "q", "k", "v", "alpha"), results, expected):
        assert actual.isfinite().all(), name
        error = (actual.double() - exact).abs().max()
        assert error <= tolerance * (exact.abs().max() + (name == "alpha")), f"{name} is off by {error:.2g}"


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_scores_so_large_that_adding_one_has_no_effect(dtype, attend):
    # z − λ must be computed before multiplying and adding: each query attends only to its single best key
    q, k, v = (torch.randn(2, 5, n, 4) for n in (6, 7, 7))
    q, k, v = ((1e4 * q).to(dtype), (1e4 * k).to(dtype), v.to(dtype))
    grad = torch.randn_like(q)
    output, dq, dk, dv, da = attend(q, k, v, ALPHAS, MASK, grad)
    expected, *_, expected_dv, _ = in_float64(q, k, v, ALPHAS, MASK, grad)
    for actual, exact in ((output, expected), (dv, expected_dv)):
        assert (actual.double() - exact).abs().max() <= TOLERANCE[dtype] * exact.abs().max()
    assert all(tensor.isfinite().all() for tensor in (dq, dk, da))


def test_a_fully_padded_sentence_contributes_nothing(attend):
    q, k, v = inputs(torch.float16)
    grad = torch.randn_like(q)
    mask = MASK.clone()
    mask[0] = True
    results = attend(q, k, v, ALPHAS, mask, grad)
    alone = attend(*(x[1:] for x in (q, k, v)), ALPHAS, mask[1:], grad[1:])
    for both, second in zip(results[:4], alone):
        assert (both[0] == 0).all()
        torch.testing.assert_close(both[1:], second)
    torch.testing.assert_close(results[4], alone[4])


def test_an_overflow_in_the_gradient_propagates_within_its_sentence_only(attend):
    q, k, v = inputs(torch.float32)
    grad = torch.randn_like(q)
    grad[1, :, 3, 2] = float("inf")
    _, dq, dk, dv, da = attend(q, k, v, ALPHAS, MASK, grad)
    for tensor in (dq[1, :, 3], dk[1], dv[1]):
        assert not tensor.isfinite().flatten(1).all(1).any()  # in no head
    assert not da.isfinite().any()
    assert all(tensor[0].isfinite().all() for tensor in (dq, dk, dv)) and dq[1, :, :3].isfinite().all()


def test_a_nan_in_a_query_propagates_within_its_head_only(attend):
    q, k, v = inputs(torch.float32)
    q[1, 2, 3, 0] = float("nan")
    output, dq, dk, dv, da = attend(q, k, v, ALPHAS, MASK, torch.zeros_like(q))
    assert output[1, 2, 3].isnan().all() and dq[1, 2, 3].isnan().all() and da[2].isnan()
    for tensor in (dk, dv):
        assert not tensor[1, 2].isfinite().any(1)[~MASK[1]].any()
    others = torch.arange(5) != 2
    for tensor in (output, dq, dk, dv):
        assert tensor[0].isfinite().all() and tensor[1, others].isfinite().all()
    assert da[others].isfinite().all()
