"""The public op: values, gradients, dtypes, shapes and errors."""

import math

import entmax as peer
import mpmath
import pytest
import torch
from helpers import (
    HALF_TYPES,
    each_once,
    mp_entmax,
    mp_entmax_gradients,
)
from torch.autograd import gradcheck, gradgradcheck

from user_dir.entmax import entmax

ALPHAS = (1.0, 1.001, 1.01, 1.1, 1.25, 1.5, 1.75, 2.0)
ABOVE_TWO = (2.5, 3.0, 4.0)
INF = float("inf")


def float64(value, requires_grad=False):
    return torch.tensor(value, dtype=torch.float64, requires_grad=requires_grad)


# ------------------------------------------------------------------ gradients, by finite differences


SHAPES = (((3, 2), -1), ((2, 7), 1), ((4, 3), 0), ((2, 5, 3), 1))


@pytest.mark.parametrize("case", each_once(alpha=(*ALPHAS, *ABOVE_TWO), shape=(((1, 1), -1), *SHAPES)))
def test_gradcheck_of_scores(case):
    alpha, (shape, dim) = case.values()
    scores = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda z: entmax(z, float64(alpha), dim), scores)
    assert gradcheck(lambda z: entmax(z, alpha, dim), scores)


@pytest.mark.parametrize("case", each_once(alpha=(*ALPHAS[1:], *ABOVE_TWO), shape=SHAPES))
def test_gradcheck_of_scores_and_alpha(case):
    alpha, (shape, dim) = case.values()
    scores = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda z, a: entmax(z, a, dim), (scores, float64(alpha, requires_grad=True)))


@pytest.mark.parametrize("n", (1, 2, 5, 33))
def test_gradient_of_alpha_at_one(n):
    # α < 1 is not allowed, so the difference is one-sided: (−25 f₀ + 48 f₁ − 36 f₂ + 16 f₃ − 3 f₄)/12h.
    scores = 2 * torch.randn(4, n, dtype=torch.float64)
    g = torch.randn(4, n, dtype=torch.float64)
    step = 5e-4
    values = [(g * entmax(scores, float64(1 + i * step))).sum() for i in range(5)]
    difference = sum(c * v for c, v in zip((-25, 48, -36, 16, -3), values)) / (12 * step)
    alpha = float64(1.0, requires_grad=True)
    (g * entmax(scores, alpha)).sum().backward()
    torch.testing.assert_close(alpha.grad, difference, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("alpha", (1.0, 1.001, 1.5, 2.0, 3.0))
def test_masked_scores_get_no_weight_and_no_gradient(alpha):
    scores = torch.randn(3, 6, dtype=torch.float64)
    hidden = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1]], dtype=torch.bool)
    masked = scores.masked_fill(hidden, -INF).requires_grad_()
    a = float64(alpha, requires_grad=True)
    g = torch.randn(3, 6, dtype=torch.float64)
    weights = entmax(masked, a)
    weights.backward(g)
    assert (weights[hidden] == 0).all() and (masked.grad[hidden] == 0).all()
    a_grad = 0.0
    for row in range(3):
        seen = scores[row][~hidden[row]].requires_grad_()
        alone = float64(alpha, requires_grad=True)
        p = entmax(seen, alone)
        p.backward(g[row][~hidden[row]])
        torch.testing.assert_close(weights[row][~hidden[row]], p, rtol=0, atol=1e-14)
        torch.testing.assert_close(masked.grad[row][~hidden[row]], seen.grad, rtol=1e-9, atol=1e-12)
        a_grad += alone.grad
    torch.testing.assert_close(a.grad, a_grad, rtol=1e-9, atol=1e-12)


# --------------------------------------------------------------------------- values, against oracles


def test_the_sixty_digit_gradients_are_those_of_the_sixty_digit_weights():
    z, g, alpha = [0.3, -0.8, 1.1, 0.2], [1.0, -2.0, 0.5, 0.7], 1.3
    dz, da = mp_entmax_gradients(z, alpha, g)
    with mpmath.workdps(60):

        def value(row, at):
            return mpmath.fsum(a * b for a, b in zip(g, mp_entmax(row, at)))

        step = mpmath.mpf(10) ** -15
        for i in range(4):
            plus, minus = list(z), list(z)
            plus[i] += step
            minus[i] -= step
            assert abs((value(plus, alpha) - value(minus, alpha)) / (2 * step) - dz[i]) < 1e-14
        assert abs((value(z, alpha + step) - value(z, alpha - step)) / (2 * step) - da) < 1e-14


@pytest.mark.parametrize("alpha", (1.1, 1.25, 1.5, 1.75, 2.0))
def test_against_the_entmax_package(alpha):
    scores = (3 * torch.randn(4, 3, 17, dtype=torch.float64)).requires_grad_()
    a, b = (float64(alpha, requires_grad=True) for _ in range(2))
    grad = torch.randn_like(scores)
    ours = torch.autograd.grad(entmax(scores, a), (scores, a), grad)
    theirs = torch.autograd.grad(peer.entmax_bisect(scores, b, n_iter=100), (scores, b), grad)
    torch.testing.assert_close(
        entmax(scores, a), peer.entmax_bisect(scores, b, n_iter=100), rtol=0, atol=1e-13
    )
    torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=1e-7)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-7, atol=0)


@pytest.mark.parametrize("alpha, exact", [(1.5, peer.entmax15), (2.0, peer.sparsemax)])
def test_against_the_exact_algorithms_of_the_entmax_package(alpha, exact):
    scores = (2 * torch.randn(5, 40, 3, dtype=torch.float64)).requires_grad_()
    grad = torch.randn_like(scores)
    for dim in (0, 1, 2):
        torch.testing.assert_close(entmax(scores, alpha, dim), exact(scores, dim=dim), rtol=0, atol=1e-13)
        (ours,) = torch.autograd.grad(entmax(scores, alpha, dim), scores, grad)
        (theirs,) = torch.autograd.grad(exact(scores, dim=dim), scores, grad)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------- softmax


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, *HALF_TYPES))
@pytest.mark.parametrize("dim", (0, 1, -1))
def test_alpha_one_is_bitwise_softmax(dtype, dim):
    scores = (5 * torch.randn(6, 9, 33)).to(dtype)
    scores[2, 3, 1::2] = -INF
    inside = torch.float32 if dtype in HALF_TYPES else dtype
    expected = torch.softmax(scores, dim, dtype=inside).to(dtype)
    for alpha in (1, 1.0, torch.tensor(1.0), torch.ones(1, 1, 1, dtype=torch.float64)):
        assert torch.equal(entmax(scores, alpha, dim), expected)


def test_a_head_at_one_is_bitwise_softmax():
    scores = 5 * torch.randn(2, 3, 4, 33)
    weights = entmax(scores, torch.tensor([1.7, 1.0, 1.2]).view(3, 1, 1))
    assert torch.equal(weights[:, 1], torch.softmax(scores[:, 1], -1))
    assert not torch.equal(weights[:, 0], torch.softmax(scores[:, 0], -1))


# ------------------------------------------------------------------------ masked rows, dtypes, sizes


def test_saves_only_its_output_and_alpha():
    saved = []
    scores = torch.randn(3, 50, requires_grad=True)
    alpha = torch.tensor([[1.2]] * 3, requires_grad=True)

    def pack(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        weights = entmax(scores, alpha)
    assert {t.data_ptr() for t in saved} == {weights.data_ptr(), alpha.data_ptr()}


@pytest.mark.parametrize("inside", HALF_TYPES)
@pytest.mark.parametrize("alpha", (1.0, 1.0001, 1.5))
def test_autocast_changes_nothing(alpha, inside):
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
        assert all(torch.equal(plain, other) for plain, other in zip(*results))


# -------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("value", (0.999999, -1.0, math.nan, INF, -INF))
def test_alpha_out_of_range_is_named(value):
    scores = torch.randn(2, 3, 4)
    for alpha in (value, torch.tensor(value), torch.tensor([1.5, 1.2, value]).view(3, 1)):
        with pytest.raises(ValueError, match=f"alpha must be at least 1 and finite, not {value:g}"):
            entmax(scores, alpha)


@pytest.mark.parametrize("shape", [(3,), (4,), (3, 1), (2, 1, 1), (1, 1, 1, 1), (3, 1, 4), (1, 3, 1, 1)])
def test_a_wrong_shape_of_alpha_is_named(shape):
    with pytest.raises(ValueError, match="broadcast") as caught:
        entmax(torch.randn(3, 5, 4), torch.full(shape, 1.5))
    assert str(tuple(shape)) in str(caught.value) and "(3, 5, 4)" in str(caught.value)


def test_other_arguments_that_do_not_fit():
    scores = torch.randn(3, 4)
    entmax(scores, torch.full((1, 4), 1.5), dim=0)
    with pytest.raises(ValueError, match=r"alpha of shape \(3, 1\).*at dim 0"):
        entmax(scores, torch.full((3, 1), 1.5), dim=0)
    with pytest.raises(ValueError, match="dim 2 is out of range"):
        entmax(scores, torch.tensor(1.5), dim=2)
    with pytest.raises(ValueError, match=r"torch\.int64"):
        entmax(torch.arange(3), 1.5)


def test_one_score_has_one_dimension():
    for alpha in (1.0, 1.5, float64(1.5)):
        for dim in (-1, 0):
            assert entmax(torch.tensor(3.0), alpha, dim) == 1
            assert entmax(torch.tensor(-INF), alpha, dim) == 0
        with pytest.raises(ValueError, match=r"dim 1 is out of range for scores of shape \(\)"):
            entmax(torch.tensor(3.0), alpha, 1)


@pytest.mark.parametrize("alpha", (*ALPHAS, 3.0))
def test_second_derivatives(alpha):
    scores = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(lambda z: entmax(z, alpha), scores)
    assert gradgradcheck(lambda z: entmax(z, float64(alpha)), scores)
    if alpha > 1:  # α < 1 is not allowed
        alphas = float64([[alpha], [1.3]], requires_grad=True)
        assert gradgradcheck(lambda z, a: entmax(z, a), (scores, alphas))


def test_a_gradient_penalty_counts():
    scores = float64([0.3, -0.2, 0.1], requires_grad=True)

    def objective(z):
        weight = entmax(z, 1.5)[0]
        (slope,) = torch.autograd.grad(weight, z, create_graph=True)
        return weight + slope.square().sum()

    (grad,) = torch.autograd.grad(objective(scores), scores)
    for place in range(3):
        moved = [scores.detach().clone().requires_grad_() for _ in range(2)]
        for z, step in zip(moved, (1e-6, -1e-6)):
            z.data[place] += step
        expected = (objective(moved[0]) - objective(moved[1])) / 2e-6
        torch.testing.assert_close(grad[place], expected, rtol=0, atol=1e-8)
