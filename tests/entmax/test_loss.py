"""The α-entmax loss: value, gradient and support, against the entmax package, 60 digits and cross-entropy."""

import entmax as package
import mpmath
import pytest
import torch
import torch.nn.functional as F
from helpers import HALF_TYPES, mp_entmax
from torch.autograd import gradgradcheck

from user_dir.entmax import entmax, entmax_loss, entmax_loss_and_support

INF, NAN = float("inf"), float("nan")
THEIRS = {1.25: package.entmax_bisect_loss, 1.5: package.entmax15_loss, 2.0: package.sparsemax_loss}


def rows(count, n, scale=2.0, dtype=torch.float64):
    return (scale * torch.randn(count, n, dtype=torch.float64)).to(dtype).requires_grad_()


def gradient(losses, scores, grad=None):
    return torch.autograd.grad(losses, scores, torch.ones_like(losses) if grad is None else grad)[0]


@pytest.mark.parametrize("alpha", THEIRS)
@pytest.mark.parametrize("n", (2, 17, 300))
def test_agrees_with_the_package(alpha, n):
    scores, target = rows(6, n), torch.randint(n, (6,))
    arguments = (1.25, 80) if alpha == 1.25 else ()
    expected = THEIRS[alpha](scores, target, *arguments)
    actual = entmax_loss(scores, target, alpha)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient(actual, scores), gradient(expected, scores), rtol=0, atol=1e-12)


@pytest.mark.parametrize("smoothing", (0.0, 0.1, 1.0))
def test_is_cross_entropy_at_one(smoothing):
    scores, target = rows(5, 40, dtype=torch.float32), torch.tensor([0, 39, -100, 7, 7])
    expected = F.cross_entropy(scores, target, reduction="none", label_smoothing=smoothing)
    actual, support = entmax_loss_and_support(scores, target, 1.0, label_smoothing=smoothing)
    assert torch.equal(actual, expected)
    assert torch.equal(gradient(actual, scores), gradient(expected, scores))
    assert support.tolist() == [40, 40, 0, 40, 40]


def mp_loss(z, y, alpha):
    with mpmath.workdps(60):
        p = mp_entmax(z, alpha)
        entropy = (1 - mpmath.fsum(weight**alpha for weight in p)) / (mpmath.mpf(alpha) * (alpha - 1))
        return float(mpmath.fsum(weight * x for weight, x in zip(p, map(mpmath.mpf, z))) - z[y] + entropy)


@pytest.mark.parametrize("alpha", (1.0009765625, 1.25, 1.5, 1.75, 2.0))
def test_against_sixty_digits(alpha):
    scores, target = rows(3, 24, dtype=torch.float32), torch.tensor([0, 11, 23])
    expected = [mp_loss(row, y, alpha) for row, y in zip(scores.tolist(), target.tolist())]
    expected = torch.tensor(expected, dtype=torch.float64)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-13)):
        actual = entmax_loss(scores.to(dtype), target, alpha)
        torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("alpha", (1.1, 1.5, 2.0))
@pytest.mark.parametrize("smoothing", (0.0, 0.2))
def test_gradcheck(alpha, smoothing):
    scores, target = rows(4, 9), torch.tensor([0, 8, -1, 3])

    def losses(scores):
        return entmax_loss(scores, target, alpha, label_smoothing=smoothing, ignore_index=-1)

    assert torch.autograd.gradcheck(losses, scores)


@pytest.mark.parametrize("alpha", (1.3, 1.5, 2.0))
def test_label_smoothing_is_that_of_a_smoothed_target(alpha):
    """Up to the entropy of the target, which does not depend on the scores."""
    scores, target, s = rows(3, 12), torch.tensor([2, 3, 4]), 0.3
    q = torch.full((3, 12), s / 12, dtype=torch.float64)
    q[torch.arange(3), target] += 1 - s
    p = entmax(scores, alpha)
    entropy = (1 - p.pow(alpha).sum(-1)) / (alpha * (alpha - 1))
    expected = ((p - q) * scores).sum(-1) + entropy
    actual = entmax_loss(scores, target, alpha, label_smoothing=s)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient(actual, scores), p.detach() - q, rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", (1.0, 1.2, 1.5, 2.0))
def test_the_gradient_and_the_support_are_those_of_the_weights(alpha):
    scores, target = rows(6, 3000, scale=3.0, dtype=torch.float32), torch.randint(3000, (6,))
    grad = torch.randn(6)
    losses, support = entmax_loss_and_support(scores, target, alpha)
    p = entmax(scores.detach().double(), alpha)
    expected = (p - F.one_hot(target, 3000)) * grad[:, None]
    actual = gradient(losses, scores, grad)
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=2e-6)
    assert ((support - (p > 1e-30).sum(-1)).abs() <= 0.01 * support).all()
    if alpha >= 1.5:
        assert torch.equal(support, (p > 0).sum(-1))


def test_layouts_and_half_precision():
    scores = torch.randn(4, 30, 3).transpose(1, 2)  # not contiguous
    target = torch.randint(30, (4, 3), dtype=torch.int32)
    expected = entmax_loss(scores.double(), target, 1.5)
    assert entmax_loss(scores, target, 1.5).shape == (4, 3)
    for dtype in HALF_TYPES:
        rounded = scores.to(dtype).requires_grad_()
        losses = entmax_loss(rounded, target, 1.5)
        assert losses.dtype == torch.float32
        assert gradient(losses, rounded).dtype == dtype
        exact = entmax_loss(rounded.double(), target, 1.5)
        torch.testing.assert_close(losses.double(), exact.detach(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(exact.detach(), expected, rtol=0, atol=0.1)


@pytest.mark.parametrize("alpha", (1.2, 1.5, 2.0))
def test_masked_infinite_and_nan_rows(alpha):
    scores = torch.randn(6, 40)
    scores[0, 20:] = -INF
    scores[1] = -INF
    scores[2, 5] = NAN
    scores[3, 5] = INF
    scores[4, 7] = -INF
    target = torch.tensor([0, 0, 0, 0, 7, -100])
    leaf = scores.clone().requires_grad_()
    losses, support = entmax_loss_and_support(leaf, target, alpha)
    visible = entmax_loss(scores[:1, :20], target[:1], alpha)
    torch.testing.assert_close(losses[:1], visible)
    assert losses[1] == INF and losses[4] == INF and losses[5] == 0
    assert losses[2:4].isnan().all()
    assert support[[1, 2, 3, 5]].tolist() == [0, 0, 0, 0] and support[0] >= 1
    grad = gradient(losses, leaf)
    assert grad[2:4].isnan().all()
    assert not grad[[1, 5]].any() and not grad[0, 20:].any()
    assert grad[0].any() and grad[4].isfinite().all()


@pytest.mark.parametrize("alpha", (1.2, 1.5, 2.0))
def test_a_row_without_scores_has_no_gradient_with_create_graph_either(alpha):
    scores = torch.randn(2, 3, dtype=torch.float64)
    scores[0] = -INF
    scores.requires_grad_()
    losses, target = entmax_loss(scores, torch.tensor([0, 1]), alpha), torch.tensor([[0.0] * 3, [0, 1, 0]])
    (grad,) = torch.autograd.grad(losses, scores, torch.ones_like(losses), create_graph=True)
    torch.testing.assert_close(grad, entmax(scores, alpha) - target, rtol=0, atol=1e-12, check_dtype=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": 0.9}, "alpha of the entmax loss must be from 1 to 2, not 0.9"),
        ({"alpha": 2.1}, "2.1"),
        ({"alpha": NAN}, "nan"),
        ({"alpha": torch.tensor(1.5, requires_grad=True)}, "no gradient of alpha"),
        ({"label_smoothing": -0.1}, "label_smoothing must be from 0 to 1, not -0.1"),
        ({"target": torch.tensor([0, 9])}, "from 0 to 8 or -100, not 9"),
        ({"target": torch.tensor([0, -1])}, "not -1"),
        ({"target": torch.tensor([0.0, 1.0])}, "integers, not torch.float32"),
        ({"target": torch.tensor([0])}, r"scores of shape \(2, 9\) and targets of shape \(1,\) do not fit"),
        ({"scores": torch.ones(2, 9, dtype=torch.long)}, "floating dtype"),
    ],
)
def test_invalid_arguments(changes, words):
    valid = {"scores": torch.randn(2, 9), "target": torch.tensor([0, 8])}
    entmax_loss(**valid)
    with pytest.raises(ValueError, match=words):
        entmax_loss(**{**valid, **changes})


def test_threads_and_rows_do_not_matter():
    scores, target = rows(12, 2500, dtype=torch.float32), torch.randint(2500, (12,))
    alone = torch.cat([entmax_loss(scores[i : i + 1], target[i : i + 1], 1.5) for i in range(12)])
    torch.set_num_threads(2)
    try:
        assert torch.equal(entmax_loss(scores, target, 1.5), alone)
    finally:
        torch.set_num_threads(1)


def test_targets_of_any_layout():
    scores, pairs = rows(12, 9), torch.randint(9, (12, 2))
    pairs[:, 1] = 10**7  # what a kernel reads that ignores strides
    for target in (pairs[:, 0], torch.tensor(3).expand(12), torch.arange(9).repeat(4)[::3]):
        losses = entmax_loss(scores, target, 1.5)
        expected = entmax_loss(scores, target.contiguous(), 1.5)
        assert torch.equal(losses, expected)
        assert torch.equal(gradient(losses, scores), gradient(expected, scores))
    tokens = torch.randint(9, (3, 4, 2))
    several = scores.detach().view(3, 4, 9)
    assert torch.equal(
        entmax_loss(several, tokens[..., 0]), entmax_loss(several, tokens[..., 0].contiguous())
    )


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("n", (100, 256, 300))
def test_targets_of_any_integers(dtype, n):
    """In uint8, −100 is 156 and 256 is 0: such bounds let some targets pass and refused others."""
    scores, limits = rows(3, n), torch.iinfo(dtype)
    target = torch.tensor([0, 3, min(n - 1, limits.max)])
    losses = entmax_loss(scores, target.to(dtype), 2.0)
    torch.testing.assert_close(losses, package.sparsemax_loss(scores, target), rtol=1e-12, atol=1e-12)
    for wrong in (-1, n, n + 56):
        if limits.min <= wrong <= limits.max:
            with pytest.raises(ValueError, match=f"from 0 to {n - 1} or -100, not {wrong}"):
                entmax_loss(scores, torch.tensor([0, 3, wrong]).to(dtype), 2.0)


@pytest.mark.parametrize(("alpha", "smoothing"), [(1.0, 0.1), (1.2, 0.1), (1.5, 0.0), (2.0, 0.0)])
def test_second_derivatives(alpha, smoothing):
    scores, target = rows(4, 6), torch.tensor([5, 0, -100, 2])
    assert gradgradcheck(lambda z: entmax_loss(z, target, alpha, label_smoothing=smoothing), scores)
