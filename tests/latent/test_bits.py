"""Sparse distributions over bit vectors: against all 2^D vectors."""

import pytest
import torch
from helpers import entmax_oracle
from scipy.optimize import nnls

from user_dir.latent import expected_bits, sparsemap_bits, topk_sparsemax_bits

SOLVERS = ("decomposition", "active_set")


def all_vectors(size):
    return torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * size).view(-1, size)


def mean(support):
    return support.expectation(support.choices)


def projected(scores, budget):
    """μ by a QP over all vectors [z; 1 − z]: the point of their convex hull that is nearest to [x; 0]."""
    vectors = all_vectors(len(scores))
    if budget is not None:
        vectors = vectors[vectors.sum(1) <= budget]
    heavy = 1e4  # holds Σ p = 1
    parts = torch.cat((vectors, 1 - vectors, torch.full_like(vectors[:, :1], heavy)), dim=1).T
    target = torch.cat((scores, torch.zeros_like(scores), scores.new_tensor([heavy])))
    weights, _ = nnls(parts.numpy(), target.numpy(), maxiter=100_000)
    return torch.from_numpy(weights) @ vectors


@pytest.mark.parametrize(
    "size, budget", [(1, None), (3, 1), (6, None), (6, 2), (10, None), (10, 4), (5, 5), (4, 0)]
)
def test_the_mean_is_that_of_a_qp_over_all_vectors(size, budget):
    scores = 1.5 * torch.randn(4, size, dtype=torch.float64) + 0.3
    expected = torch.stack([projected(row, budget) for row in scores])
    torch.testing.assert_close(expected_bits(scores, budget), expected, rtol=0, atol=1e-6)
    for solver in SOLVERS:
        support = sparsemap_bits(scores, budget, solver)
        torch.testing.assert_close(mean(support), expected_bits(scores, budget), rtol=0, atol=1e-8)
        torch.testing.assert_close(
            support.expectation(torch.ones_like(support.weights)), torch.ones(4).double()
        )
        assert (support.weights > 0).all() and support.certified.all()
        assert (support.counts() <= size + 1).all()
        assert ((support.choices == 0) | (support.choices == 1)).all()
        assert support.choices.sum(1).max() <= (size if budget is None else budget)


# Of sums of up to 601 weights, each rounded to its dtype; in float16 to a multiple of 2^-24.
ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}


@pytest.mark.parametrize("share", (None, 0.1))
@pytest.mark.parametrize("size", (32, 600))
@pytest.mark.parametrize("dtype", ROUNDING)
def test_no_mass_is_lost(dtype, size, share):
    scores = torch.randn(1, size).to(dtype)
    budget = None if share is None else int(share * size)
    support = sparsemap_bits(scores, budget)
    assert support.weights.dtype == support.choices.dtype == dtype
    assert (support.weights > 0).all() and support.certified.all()
    assert abs(float(support.weights.double().sum()) - 1) <= ROUNDING[dtype]
    expected = expected_bits(scores.double(), budget)
    actual = support.weights.double() @ support.choices.double()
    torch.testing.assert_close(actual, expected[0], rtol=0, atol=ROUNDING[dtype])
    assert support.choices.float().sum(1).max() <= (size if budget is None else budget)


@pytest.mark.parametrize("budget", (None, 2))
def test_gradients(budget):
    scores = torch.randn(2, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: expected_bits(x, budget), scores)
    assert torch.autograd.gradcheck(lambda x: mean(sparsemap_bits(x, budget, "active_set")), scores)
    assert torch.autograd.gradcheck(lambda x: sparsemap_bits(x, budget).weights, scores)


@pytest.mark.parametrize("budget", (0, 1))
def test_a_mean_that_a_budget_holds_at_its_bounds_has_no_gradient(budget):
    """λ is then exactly a score; the mean does not change near these scores."""
    scores = (4 * torch.randn(20, 5, dtype=torch.float64)).requires_grad_()
    function = torch.randn(20, 5, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((expected_bits(scores, budget) * function).sum(), scores)
    steps = 1e-5 * torch.eye(5, dtype=torch.float64)
    with torch.no_grad():
        values = [
            [(expected_bits(scores + sign * step, budget) * function).sum(1) for sign in (1, -1)]
            for step in steps
        ]
    expected = torch.stack([(up - down) / 2e-5 for up, down in values], dim=1)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-6)
    assert (gradient == 0).all(1).any()


def test_few_bits_decide_among_many():
    """Only differences of the scores of vectors matter, whose sums are large."""
    scores = 5 + 100 * torch.rand(1, 500)
    scores[0, :3] = torch.tensor([0.1, -0.2, 0.05])
    actual, expected = (topk_sparsemax_bits(x, 8).weights for x in (scores, scores.double()))
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=1e-6)


def test_a_very_large_score_leaves_the_others_their_share():
    scores = torch.tensor([[1e12, 0.5, 0.3, 0.1]])
    expected = expected_bits(torch.tensor([[10, 0.5, 0.3, 0.1]]), 2)
    torch.testing.assert_close(expected_bits(scores, 2), expected)


@pytest.mark.parametrize("size, k", ((1, 1), (4, 1), (4, 5), (4, 16), (7, 2), (7, 16), (7, 200)))
def test_top_k_finds_the_best_vectors(size, k):
    scores = torch.randn(6, size, dtype=torch.float64).requires_grad_()
    support = topk_sparsemax_bits(scores, k)
    vectors = all_vectors(size)
    values = (scores @ vectors.T).detach()
    best = values.sort(dim=1, descending=True).values[:, :k]
    for example in range(6):
        weights = entmax_oracle(best[example], 2.0)
        own = support.batch == example
        mine, order = support.weights[own].sort(descending=True)
        torch.testing.assert_close(mine, weights[weights > 0], rtol=0, atol=1e-12)
        chosen = (support.choices[own][order] * scores[example]).sum(1)
        torch.testing.assert_close(chosen, best[example, weights > 0], rtol=0, atol=1e-12)
    # certified where all 2^D vectors have the same distribution; then its gradient is the same too
    whole = entmax_oracle(values, 2.0)
    assert torch.equal(support.certified, ((whole > 0).sum(1) < k) | (k >= 2**size))
    function = torch.randn(size, dtype=torch.float64)
    value = support.expectation((support.choices @ function).sin())[support.certified]
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    everything = topk_sparsemax_bits(scores, 2**size)
    expected = everything.expectation((everything.choices @ function).sin())[support.certified]
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), scores)[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("budget", (-1, 4, 1.5))
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_budget_out_of_range_is_named(budget, solver):
    with pytest.raises(ValueError, match=f"an integer between 0 and the 3 bits, not {budget}"):
        sparsemap_bits(torch.zeros(1, 3), budget, solver)


def test_other_bad_arguments_are_named():
    scores = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="k must be at least 1, not -2"):
        topk_sparsemax_bits(scores, -2)
    with pytest.raises(ValueError, match="unknown solver 'x'"):
        sparsemap_bits(scores, solver="x")
    scores[0, 1] = float("nan")
    for function in (expected_bits, sparsemap_bits, lambda x: topk_sparsemax_bits(x, 2)):
        with pytest.raises(ValueError, match=r"scores\[0, 1\] is nan"):
            function(scores)
    with pytest.raises(ValueError, match=r"scores\[0, 0\] is -inf"):
        sparsemap_bits(torch.full((1, 2), float("-inf")))
