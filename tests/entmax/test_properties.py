"""Properties of α-entmax for arbitrary scores, found by search."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from user_dir.entmax import entmax

ROWS = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=24)
ALPHAS = st.one_of(st.floats(1, 2), st.floats(2, 4), st.sampled_from((1.0, 1.5, 2.0, 1 + 1e-7, 1 + 2.0**-23)))
DTYPES = st.sampled_from((torch.float32, torch.float64))

search = hypothesis.settings(max_examples=40, deadline=None, derandomize=True)


def weights_of(row, alpha, dtype):
    return entmax(torch.tensor(row, dtype=dtype), torch.tensor(alpha, dtype=torch.float64))


@search
@hypothesis.given(ROWS, ALPHAS, DTYPES)
def test_weights_are_a_distribution(row, alpha, dtype):
    weights = weights_of(row, alpha, dtype)
    assert (weights >= 0).all() and (weights <= 1 + torch.finfo(dtype).eps).all()
    assert abs(weights.double().sum().item() - 1) <= len(row) * torch.finfo(dtype).eps


@search
@hypothesis.given(ROWS, ALPHAS, DTYPES)
def test_order_of_scores_is_kept(row, alpha, dtype):
    weights = weights_of(sorted(row), alpha, dtype)
    # equal up to the rounding of one weight
    assert (weights.diff() >= -4 * torch.finfo(dtype).eps).all()


@search
@hypothesis.given(ROWS, st.floats(1, 2), st.integers(-64, 64), DTYPES)
def test_adding_a_constant_changes_nothing(row, alpha, constant, dtype):
    # integer scores and constants make the sum exact
    row = [float(round(x)) for x in row]
    moved = weights_of([x + constant for x in row], alpha, dtype)
    assert torch.equal(moved, weights_of(row, alpha, dtype))


@search
@hypothesis.given(ROWS, st.floats(1.001, 4))
def test_scores_out_of_reach_get_exactly_zero(row, alpha):
    scores = torch.tensor(row, dtype=torch.float64)
    weights = entmax(scores, alpha)
    out_of_reach = scores < scores.max() - (1 + 1e-9) / (alpha - 1)
    assert (weights[out_of_reach] == 0).all()
    assert weights[scores.argmax()] > 0


@search
@hypothesis.given(st.lists(st.floats(-3, 3), min_size=2, max_size=12), st.floats(1.01, 1.95))
def test_weights_maximise_the_regularised_score(row, alpha):
    # p maximises p·z + H(p), H the Tsallis α-entropy: z_i − p_i^(α−1)/(α−1) is constant on the support, and
    # at least as large as any score outside it (the optimality conditions).
    scores = torch.tensor(row, dtype=torch.float64)
    p = entmax(scores, alpha)
    potential = scores - p.pow(alpha - 1) / (alpha - 1)
    support = p > 0
    threshold = potential[p.argmax()]
    torch.testing.assert_close(
        potential[support], threshold.expand_as(potential[support]), rtol=0, atol=1e-12
    )
    assert (scores[~support] <= threshold + 1e-12).all()


@search
@hypothesis.given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=24), st.floats(1, 4))
def test_gradient_of_scores_sums_to_zero(row, alpha):
    scores = torch.tensor(row, dtype=torch.float64, requires_grad=True)
    weights = entmax(scores, alpha)
    hypothesis.assume(alpha <= 2 or weights[weights > 0].min() > 1e-3)
    grad = torch.linspace(-1, 1, len(row), dtype=torch.float64)
    (dz,) = torch.autograd.grad(weights, scores, grad)
    assert abs(dz.sum().item()) <= 1e-13 * (1 + dz.abs().sum().item())


@pytest.mark.parametrize("alpha", (1.1, 1.5, 2.0, 3.0))
def test_larger_alpha_or_scale_is_no_less_sparse(alpha):
    scores = 2 * torch.randn(64, 100, dtype=torch.float64)
    support = (entmax(scores, alpha) > 0).sum(-1)
    assert ((entmax(scores, alpha + 0.3) > 0).sum(-1) <= support).all()
    assert ((entmax(2 * scores, alpha) > 0).sum(-1) <= support).all()
    assert support.double().mean() < 99 and (support >= 1).all()
