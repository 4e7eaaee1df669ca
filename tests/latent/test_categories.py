"""Sparse distributions over choices that can be enumerated: against the bisection oracle."""

import pytest
import torch
from helpers import entmax_oracle

from user_dir.latent import entmax, sparsemax, topk_entmax, topk_sparsemax


def dense(support, size):
    """The weights as a matrix (B, n)."""
    weights = support.weights.new_zeros(len(support), size)
    return weights.index_put((support.batch, support.choices), support.weights)


@pytest.mark.parametrize("alpha", (1.0, 1.2, 1.5, 2.0))
def test_the_support_holds_all_nonzero_weights(alpha):
    scores = 2 * torch.randn(40, 17, dtype=torch.float64)
    scores[3, 4:] = float("-inf")
    support = entmax(scores, alpha)
    expected = entmax_oracle(scores, alpha)
    torch.testing.assert_close(dense(support, 17), expected, rtol=0, atol=1e-13)
    assert (support.weights > 0).all() and support.certified.all() and len(support) == 40
    assert torch.equal(support.counts(), (expected > 0).sum(1))
    assert support.counts()[3] <= 4
    entropy = torch.special.entr(expected).sum(1)
    torch.testing.assert_close(support.entropy(), entropy, rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", (1.3, 1.5, 2.0))
@pytest.mark.parametrize("k", (1, 2, 4, 8, 30))
def test_a_certified_top_k_is_the_whole_distribution(alpha, k):
    scores = 3 * torch.randn(200, 12, dtype=torch.float64)
    scores.requires_grad_()
    capped, whole = topk_entmax(scores, k, alpha), entmax(scores, alpha)
    certified = capped.certified
    # exactly where a candidate is left over, or there is nothing else to choose
    assert torch.equal(certified, (whole.counts() < k) | (k >= 12))
    assert (capped.counts() <= k).all()
    sums = capped.expectation(torch.ones_like(capped.weights))
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-12)
    if k > 1:
        assert certified.any()
    values = torch.randn(12, dtype=torch.float64)
    expectations, gradients = [], []
    for support in (capped, whole):
        expected = support.expectation(values[support.choices])[certified]
        expectations.append(expected)
        gradients.append(torch.autograd.grad(expected.sum(), scores)[0])
    torch.testing.assert_close(*expectations, rtol=0, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-11)


@pytest.mark.parametrize("function", (sparsemax, lambda x: entmax(x, 1.5), lambda x: topk_sparsemax(x, 3)))
def test_gradients(function):
    scores = torch.randn(5, 9, dtype=torch.float64).requires_grad_()
    values = torch.randn(9, dtype=torch.float64)

    def results(x):
        support = function(x)
        return support.expectation(values[support.choices]), support.entropy()

    assert torch.autograd.gradcheck(results, scores)


def test_gradient_of_alpha():
    scores = torch.randn(5, 9, dtype=torch.float64)
    alpha = (1.2 + 0.6 * torch.rand(5, 1, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: entmax(scores, a).entropy(), alpha)


@pytest.mark.parametrize("alpha", (1.0, torch.tensor(1.0), torch.ones(2, 1)))
def test_underflow_at_alpha_of_one_certifies_nothing(alpha):
    scores = torch.tensor([[0.0, -200.0, -300.0], [0.0, 0.0, -1e30]])
    support = topk_entmax(scores, 2, alpha)
    assert (support.counts() == torch.tensor([1, 2])).all()  # e^-200 underflows
    assert not support.certified.any()
    assert not topk_entmax(scores[:, [0, 2, 2]], 2, alpha).certified.any()


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float32, torch.float64))
@pytest.mark.parametrize("eps", (1e-4, 1e-2, 0.1, 0.5, 1.0, 2.0))
def test_the_certificate_is_the_threshold_condition(eps, dtype):
    """Of two candidates, the second has 1 + ε (z − λ) ≤ 0 just where ε times their distance is at least 1."""
    for share, expected in ((0.9, False), (0.999, False), (1.001, True), (1.1, True), (1e4, True)):
        if dtype == torch.bfloat16 and abs(share - 1) < 0.05:
            continue
        scores = torch.tensor([[0.0, -share / eps, -share / eps]]).to(dtype)
        support = topk_entmax(scores, 2, 1 + eps)
        assert support.certified.tolist() == [expected], share
        if eps >= 0.5:  # without underflow, it is the weight
            assert (support.counts() == 1).all() == expected


BAD = {
    "nan": (torch.tensor([[0.0, 1.0], [2.0, float("nan")]]), "scores[1, 1] is nan"),
    "infinite": (torch.tensor([[float("inf"), 1.0]]), "scores[0, 0] is inf"),
    "no choice": (torch.full((1, 2), float("-inf")), "scores[0] are all -inf"),
    "no dimension": (torch.zeros(3), r"(B, n) with n at least 1, not (3,)"),
    "empty": (torch.zeros(3, 0), r"not (3, 0)"),
    "integers": (torch.zeros(3, 2, dtype=torch.long), "not torch.int64"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_scores_are_named(case):
    scores, message = BAD[case]
    for function in (sparsemax, lambda x: topk_sparsemax(x, 2)):
        with pytest.raises(ValueError) as raised:
            function(scores)
        assert message in str(raised.value)


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        topk_sparsemax(torch.zeros(1, 2), 0)
    with pytest.raises(ValueError, match=r"alpha must be at least 1 and finite, not 0\.5"):
        entmax(torch.zeros(1, 2), 0.5)
    assert sparsemax(torch.zeros(0, 2)).weights.numel() == 0  # an empty batch is no error
