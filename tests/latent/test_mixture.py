"""The log-mixture: the native kernel and plain torch against a sum in float64."""

import math

import pytest
import torch
from torch.library import opcheck

from user_dir.latent import log_mixture, mixture

INFINITY, NAN = math.inf, math.nan


@pytest.fixture(params=("native", "reference"), autouse=True)
def _implementation(request, monkeypatch):
    if request.param == "reference":
        monkeypatch.setenv("ENTMAX_BACKEND", "reference")
        monkeypatch.setattr(mixture, "run_kernel", None)  # not called
    elif not mixture.kernels.available():
        pytest.skip("no C++ compiler")


def problem(pairs: int, size: int, rows: int, dtype=torch.float64, spread: float = 3.0):
    logits = (spread * torch.randn(pairs, size, dtype=torch.float64)).to(dtype).requires_grad_()
    weights = (0.1 + torch.rand(pairs, dtype=torch.float64)).to(dtype).requires_grad_()
    row = torch.randint(rows, (pairs,)).sort().values
    return logits, weights, row, rows


def oracle(logits, weights, row, rows):
    """A loop over rows, in float64."""
    terms = logits.double().log_softmax(1) + weights.double().log().unsqueeze(1)
    sums = [terms[row == r].logsumexp(0) for r in range(rows)]
    return torch.stack(sums)


# Fewer words than a vector has lanes, whole vectors, remainders, more than a block of 64 vectors.
@pytest.mark.parametrize("size", (1, 3, 16, 17, 1100))
@pytest.mark.parametrize(("dtype", "tolerance"), ((torch.float64, 1e-11), (torch.float32, 2e-5)))
def test_values_and_gradients(size, dtype, tolerance):
    logits, weights, row, rows = problem(13, size, 4, dtype)
    row[:4] = torch.arange(4)  # no row is empty
    row = row.sort().values
    mixed, expected = log_mixture(logits, weights, row, rows), oracle(logits, weights, row, rows)
    assert mixed.dtype == dtype
    torch.testing.assert_close(mixed.double(), expected, rtol=tolerance, atol=tolerance)
    grad = torch.randn(rows, size, dtype=torch.float64)
    ours = torch.autograd.grad(mixed, (logits, weights), grad.to(dtype))
    theirs = torch.autograd.grad(expected, (logits, weights), grad)
    for actual, other in zip(ours, theirs):
        scale = max(1, float(other.abs().max()))
        torch.testing.assert_close(actual.double() / scale, other.double() / scale, rtol=0, atol=tolerance)


def test_gradients_where_a_row_is_empty():
    logits = torch.randn(5, 7, dtype=torch.float64).requires_grad_()
    weights = torch.tensor([0.2, 0.8, 1.0, 0.5, 0.5], dtype=torch.float64).requires_grad_()
    row = torch.tensor([0, 0, 1, 3, 3])
    assert torch.autograd.gradcheck(
        lambda logits, weights: log_mixture(logits, weights, row, 4)[[0, 1, 3]], (logits, weights)
    )
    empty = log_mixture(logits, weights, row, 4)[2]
    assert (empty == empty[0]).all() and -INFINITY < empty[0] < -600


@pytest.mark.parametrize("scale", (1, 1e3))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
def test_words_that_are_impossible_have_finite_gradients(dtype, scale):
    logits = torch.tensor([[0.0, -500.0, 3.0], [200.0, -300.0, -INFINITY]], dtype=dtype, requires_grad=True)
    weights = torch.tensor([0.5, 0.5], dtype=dtype, requires_grad=True)
    mixed = log_mixture(logits, weights, torch.tensor([0, 0]), 2)
    assert mixed.dtype == torch.float32 and mixed.isfinite().all()
    (scale * mixed[0]).sum().backward()
    assert logits.grad.dtype == weights.grad.dtype == dtype
    assert logits.grad.isfinite().all() and weights.grad.isfinite().all()


@pytest.mark.parametrize("bad", ([NAN, 0.0, 1.0], [INFINITY, 0.0, 1.0], [-INFINITY] * 3))
def test_a_broken_row_is_nan_and_the_others_are_not(bad):
    logits = torch.tensor([[0.0, 1.0, 2.0], bad, [3.0, 1.0, 2.0]], requires_grad=True)
    mixed = log_mixture(logits, torch.tensor([1.0, 0.5, 0.5]), torch.tensor([0, 1, 1]), 2)
    torch.testing.assert_close(mixed[0], logits[0].log_softmax(0))
    assert mixed[1].isnan().all()
    mixed.sum().backward()
    assert logits.grad[0].isfinite().all() and logits.grad[1].isnan().all()


def spread_out(values):
    """The same values, with other numbers between them in memory."""
    return torch.stack((values, torch.full_like(values, 7)), dim=-1)[..., 0]


def test_weights_rows_and_logits_may_be_strided():
    logits, weights, row, rows = problem(9, 5, 3)
    expected = log_mixture(logits, weights, row, rows)
    grad = torch.randn_like(expected)
    theirs = torch.autograd.grad(expected, (logits, weights), grad)
    tensors = [spread_out(tensor.detach()) for tensor in (logits, weights, row)]
    assert not any(tensor.is_contiguous() for tensor in tensors)
    strided = tensors[0].requires_grad_(), tensors[1].requires_grad_(), tensors[2]
    mixed = log_mixture(*strided, rows)
    assert torch.equal(mixed, expected)
    for actual, other in zip(torch.autograd.grad(mixed, strided[:2], spread_out(grad)), theirs):
        assert torch.equal(actual, other)


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int8, torch.int16, torch.int32))
def test_rows_may_be_of_any_integers(dtype):
    """Also where the number of rows does not fit into their type, in which 256 would be 0."""
    for rows in (100, 256):
        logits, weights, row, _ = problem(6, 5, min(rows, 128))
        mixed = log_mixture(logits, weights, row.to(dtype), rows)
        assert torch.equal(mixed, log_mixture(logits, weights, row, rows))
        if rows == 100:
            row[-1] = 120
            with pytest.raises(ValueError, match="row must ascend from 0 to 99"):
                log_mixture(logits, weights, row.to(dtype), rows)


# Each of these read or wrote beyond the ends of the shorter tensors, or left out pairs.
SHAPES = (
    ((5, 7), (2,), (5,)),
    ((5, 7), (6,), (5,)),
    ((5, 7), (5, 1), (5,)),
    ((5, 7), (5,), (2,)),
    ((2, 7), (2,), (5,)),
    ((5,), (5,), (5,)),
    ((5, 7, 2), (5,), (5,)),
)


@pytest.mark.parametrize("shapes", SHAPES)
def test_shapes_that_do_not_fit_are_named(shapes):
    logits, weights = (torch.ones(shape, requires_grad=True) for shape in shapes[:2])
    row = torch.zeros(shapes[2], dtype=torch.long)
    with pytest.raises(ValueError) as raised:
        log_mixture(logits, weights, row, 5)
    named = ", ".join(str(list(shape)) for shape in shapes[:2]) + f" and {list(shapes[2])}"
    assert named in str(raised.value)


def test_large_gradients_of_words_that_are_nearly_impossible():
    logits = torch.tensor([[0.0, -82.0]], requires_grad=True)  # log 1e-37 = −85.2
    log_mixture(logits, torch.ones(1), torch.tensor([0]), 1)[0, 1].mul(65536).backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-65536.0, 65536.0]]))


def test_weights_that_vanish_in_the_dtype_of_the_logits_are_named():
    with pytest.raises(ValueError, match="weights must be positive"):
        log_mixture(torch.zeros(1, 3), torch.tensor([1e-60], dtype=torch.float64), torch.tensor([0]), 1)


@pytest.mark.parametrize("row", ([1, 0], [0, 2], [-1, 0]))
def test_rows_out_of_order_or_range(row):
    with pytest.raises(ValueError, match="row must ascend from 0 to 1"):
        log_mixture(torch.zeros(2, 3), torch.ones(2), torch.tensor(row), 2)


def test_a_second_derivative_is_never_zero_in_silence():
    logits, weights, row, rows = problem(6, 5, 3)
    leaves = (logits, weights)
    slopes = torch.autograd.grad(log_mixture(*leaves, row, rows).sin().sum(), leaves, create_graph=True)
    for slope in slopes:
        for leaf in leaves:
            with pytest.raises(RuntimeError, match="log_mixture cannot be differentiated twice"):
                torch.autograd.grad(slope.square().sum(), leaf, retain_graph=True, allow_unused=True)


# ------------------------------------------------------------------------------------ as an operator

ROW = torch.tensor([0, 0, 1, 3, 3])


def logits_and_weights():
    return torch.randn(5, 7, dtype=torch.float64), 0.1 + torch.rand(5, dtype=torch.float64)


def squares(logits, weights):
    return log_mixture(logits, weights, ROW, 4)[[0, 1, 3]].square()


def squared(logits, weights):
    return squares(logits, weights).sum()


def test_are_what_torch_expects():
    logits, weights = (tensor.requires_grad_() for tensor in logits_and_weights())
    opcheck(mixture.log_mixture_operator, (logits, weights, ROW, 4))
    _, mixed, pairs = mixture.log_mixture_operator(logits, weights, ROW, 4)
    kept = (logits.detach(), weights.detach(), ROW, mixed, pairs, torch.randn(4, 7, dtype=torch.float64))
    opcheck(mixture.log_mixture_backward, kept)


@pytest.mark.parametrize(
    "_implementation", ("native",), indirect=True
)  # an operator, whatever computes in it
def test_compiles_without_breaks():
    torch._dynamo.reset()
    compiled = torch.compile(log_mixture, fullgraph=True, dynamic=True, backend="aot_eager")
    logits, weights = logits_and_weights()
    for n in (5, 4):
        assert torch.equal(
            compiled(logits[:n], weights[:n], ROW[:n], 4), log_mixture(logits[:n], weights[:n], ROW[:n], 4)
        )
    with pytest.raises(ValueError, match="ascend"):
        compiled(logits, weights, ROW.flip(0), 4)


def test_transforms():
    leaves = [tensor.requires_grad_() for tensor in logits_and_weights()]
    grads = torch.func.grad(squared, (0, 1))(*(leaf.detach() for leaf in leaves))
    torch.testing.assert_close(grads, torch.autograd.grad(squared(*leaves), leaves))
    logits, weights = (torch.stack((leaf.detach(), 2 * leaf.detach())) for leaf in leaves)
    mixed = torch.vmap(lambda z, w: log_mixture(z, w, ROW, 4))(logits, weights)
    assert torch.equal(mixed[1], log_mixture(logits[1], weights[1], ROW, 4))
    actual, expected = (
        torch.autograd.functional.jacobian(squares, (logits[1], weights[1]), vectorize=at_once)
        for at_once in (True, False)
    )
    torch.testing.assert_close(actual, expected)
    with pytest.raises(RuntimeError, match="twice"):
        torch.func.grad(lambda z: torch.func.grad(squared)(z, weights[0]).square().sum())(logits[0])
