"""Sparse distributions over vectors of D bits, without enumerating the 2^D vectors.

A vector z ∈ {0, 1}^D has the score x·z for scores x of the bits. A score that is not finite, k below 1 and a
budget outside of 0 … D raise ValueError.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..entmax import entmax as entmax_weights
from ..entmax.reference import working_dtype
from .categories import is_certified
from .sparsemap import bits_oracle, budget_oracle, sparsemap
from .support import Support, check_budget, check_k, check_scores


def topk_sparsemax_bits(scores: Tensor, k: int) -> Support:
    """Sparsemax over the k best of all 2^D bit vectors, certified as in :func:`.categories.topk_entmax`.

    Args:
        scores: (B, D), finite.
        k: the largest number of vectors of an example.

    Returns:
        A support whose choices are (N, D) of 0 and 1, in the dtype of the scores. O(B k D) memory.

    Source: Correia et al. 2020 (https://arxiv.org/abs/2007.01919), section 4.
    """
    check_scores(scores, finite=True)
    check_k(k)
    vectors = _best_vectors(scores.detach(), k)
    best = (scores > 0).to(scores.dtype).unsqueeze(1)  # less its score, because sums of many scores round
    values = ((vectors - best) * scores.unsqueeze(1)).sum(2, dtype=working_dtype(scores.dtype))
    weights = entmax_weights(values, 2.0)
    # k may exceed 2^D: then all vectors are among the candidates.
    everything = vectors.size(1) == 2 ** scores.size(1)
    certified = is_certified(values, weights, 2.0) | everything
    return Support.of(vectors, weights.to(scores.dtype), certified)


def _best_vectors(scores: Tensor, k: int) -> Tensor:
    """The k vectors of highest score, or all 2^D if these are fewer: (B, k, D).

    The best vector is [x > 0]; flipping bit i costs |x_i|. The k cheapest sets of flips of the first i bits
    are among those of the first i − 1 bits, each with and without bit i. With the bits in ascending order of
    cost, bit k is no better than k − 1 other single flips and no flip: only the first k − 1 bits are flipped.
    """
    batch, size = scores.shape
    price, order = scores.abs().to(working_dtype(scores.dtype)).sort(dim=1)
    cost = price.new_zeros(batch, 1)
    flips = torch.zeros(batch, 1, size, dtype=torch.bool, device=scores.device)
    for i in range(min(size, k - 1)):
        flipped = flips.clone()
        flipped[:, :, i] = True
        cost = torch.cat((cost, cost + price[:, i : i + 1]), dim=1)
        flips = torch.cat((flips, flipped), dim=1)
        if cost.size(1) > k:
            cost, kept = cost.topk(k, dim=1, largest=False)
            flips = flips.gather(1, kept.unsqueeze(2).expand(-1, -1, size))
    flips = torch.zeros_like(flips).scatter(2, order.unsqueeze(1).expand_as(flips), flips)
    return ((scores > 0).unsqueeze(1) ^ flips).to(scores.dtype)


def expected_bits(scores: Tensor, budget: int | None = None) -> Tensor:
    """The mean μ of the SparseMAP distribution over bit vectors, in closed form.

    With each bit described by [z; 1 − z], SparseMAP maximises x·μ − ½ (‖μ‖² + ‖1 − μ‖²), so that
    μ = clip((x + 1 − λ)/2, 0, 1) with the least λ ≥ 0 for which Σ μ is within the budget.

    Args:
        scores: (B, D), finite.
        budget: the largest number of bits that are 1 in a vector; None for no limit.

    Returns:
        μ (B, D), differentiable in the scores.

    Source: Niculae et al. 2018 (https://arxiv.org/abs/1802.04223), equation 6, for this set of vertices.
    """
    check_scores(scores, finite=True)
    free = (scores.to(working_dtype(scores.dtype)) + 1) / 2
    if budget is None:
        return free.clamp(0, 1).to(scores.dtype)
    check_budget(budget, scores.size(1))
    with torch.no_grad():
        # At λ/2 = the (budget + 1)-th greatest, at most `budget` bits are left; at 1 less, these are all 1.
        ordered = free.sort(1, descending=True).values
        high = ordered[:, min(budget, free.size(1) - 1), None].clamp_min(0)
        low = (high - 1).clamp_min(0)
        for _ in range(60 if free.dtype == torch.float64 else 30):
            middle = (low + high) / 2
            over = (free - middle).clamp(0, 1).sum(1, keepdim=True) > budget
            low, high = torch.where(over, middle, low), torch.where(over, high, middle)
        at_root = free - high
        bound = (free.clamp(0, 1).sum(1, keepdim=True) > budget) & (high > 0)
        inside = bound & (at_root > 0) & (at_root < 1)
        ones = (at_root >= 1).sum(1, keepdim=True)
        number = inside.sum(1, keepdim=True)
    # λ/2 solves Σ_inside (free − λ/2) + ones = budget; this formula makes it differentiable in the scores.
    shift = (torch.where(inside, free, 0.0).sum(1, keepdim=True) - (budget - ones)) / number.clamp_min(1)
    shift = torch.where(number > 0, shift, torch.where(bound, high, 0.0))
    mean = (free - shift).clamp(0, 1)
    # exactly at a bound, the gradient of clamp is 1, but the budget keeps such a bit where it is
    return torch.where(bound & ~inside, mean.detach(), mean).to(scores.dtype)


def sparsemap_bits(scores: Tensor, budget: int | None = None, solver: str = "decomposition") -> Support:
    """SparseMAP over bit vectors, optionally with at most ``budget`` bits that are 1.

    The mean μ of the distribution is unique, but not the distribution: the solvers return different ones.

    Args:
        scores: (B, D), finite.
        budget: the largest number of bits that are 1 in a vector; None for no limit.
        solver: ``decomposition`` splits :func:`expected_bits` into at most D + 1 vectors in fixed order, for
            the whole batch at once; ``active_set`` is :func:`.sparsemap.sparsemap`, one example at a time.

    Returns:
        A support whose choices are (N, D) of 0 and 1, in the dtype of the scores.
    """
    check_scores(scores, finite=True)
    if solver == "decomposition":
        # In float64: typical weights are near 1/D, as small as the rounding of D terms in narrower dtypes.
        mean = expected_bits(scores.double(), budget)
        vectors, weights = level_sets(mean) if budget is None else systematic(mean, budget)
        return Support.of(vectors.to(scores.dtype), weights.to(scores.dtype))
    if solver != "active_set":
        raise ValueError(f"unknown solver {solver!r}: choose decomposition or active_set")
    oracle = bits_oracle if budget is None else budget_oracle(budget)
    support = sparsemap(torch.cat((scores, torch.zeros_like(scores)), dim=1), oracle)
    return replace(support, choices=support.choices[:, : scores.size(1)])


def level_sets(mean: Tensor) -> tuple[Tensor, Tensor]:
    """Nested vectors: those of the bits whose mean exceeds a level.

    Args:
        mean: μ (B, D), in [0, 1].

    Returns:
        Boolean vectors (B, D + 1, D) and weights (B, D + 1) with Σ weights · vectors = μ. The weights are
        differences of neighbours in the sorted μ, and differentiable; that of equal neighbours is exactly 0.
    """
    levels, order = mean.sort(dim=1, descending=True)
    zero = torch.zeros_like(levels[:, :1])
    ends = torch.cat((zero + 1, levels, zero), dim=1)
    rank = order.argsort(dim=1)
    number = torch.arange(mean.size(1) + 1, device=mean.device).view(1, -1, 1)
    return rank.unsqueeze(1) < number, ends[:, :-1] - ends[:, 1:]


def systematic(mean: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """All outcomes of systematic sampling: every vector has ⌊Σμ⌋ or ⌈Σμ⌉ bits that are 1.

    With c the cumulative sums of μ, the outcome of a start u ∈ [0, 1) has bit i if u, u + 1, u + 2 … falls
    between c_(i−1) and c_i. Outcomes change at the fractional parts of c.

    Args:
        mean: μ (B, D), in [0, 1].
        budget: an upper bound of Σ μ that rounding must not exceed.

    Returns:
        Boolean vectors (B, D + 1, D) and differentiable weights (B, D + 1) with Σ weights · vectors = μ.
        Weights that are no more than the rounding of a sum of D numbers are 0.
    """
    sums = mean.cumsum(1)
    sums = sums - (sums - budget).clamp_min(0).detach()
    fractions = (sums - sums.detach().floor()).sort(dim=1).values
    zero = torch.zeros_like(fractions[:, :1])
    ends = torch.cat((zero, fractions, zero + 1), dim=1)
    weights = ends[:, 1:] - ends[:, :-1]
    with torch.no_grad():
        start = ((ends[:, 1:] + ends[:, :-1]) / 2).unsqueeze(2)
        # the number of u, u + 1, … below c, for c_0 = 0 and each c_i
        below = torch.cat((zero, sums), dim=1).unsqueeze(1) - start
        below.ceil_().clamp_min_(0)
        vectors = below[:, :, 1:] > below[:, :, :-1]
    # Fractional parts that differ by rounding only leave intervals whose vector may be wrong.
    rounding = mean.size(1) * torch.finfo(mean.dtype).eps
    return vectors, torch.where(weights > rounding, weights, 0.0)
