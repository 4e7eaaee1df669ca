"""A mean of bit vectors written as a distribution over at most D + 1 of them."""

from __future__ import annotations

import torch
from torch import Tensor


def level_sets(mean: Tensor) -> tuple[Tensor, Tensor]:
    """Nested vectors: those of the bits whose mean exceeds a level.

    Args:
        mean: μ (B, D), in [0, 1].

    Returns:
        Boolean vectors (B, D + 1, D) and weights (B, D + 1) with Σ weights · vectors = μ. The weights are
        differences of neighbours in the sorted μ, and differentiable; that of equal neighbours is exactly 0.
    """
    levels, order = mean.sort(dim=1, descending=True)
    ends = torch.cat((torch.ones_like(levels[:, :1]), levels, torch.zeros_like(levels[:, :1])), dim=1)
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
    ends = torch.cat(
        (torch.zeros_like(fractions[:, :1]), fractions, torch.ones_like(fractions[:, :1])), dim=1
    )
    weights = ends[:, 1:] - ends[:, :-1]
    with torch.no_grad():
        start = ((ends[:, 1:] + ends[:, :-1]) / 2).unsqueeze(2)
        # the number of u, u + 1, … below c, for c_0 = 0 and each c_i
        below = torch.cat((torch.zeros_like(sums[:, :1]), sums), dim=1).unsqueeze(1) - start
        below.ceil_().clamp_min_(0)
        vectors = below[:, :, 1:] > below[:, :, :-1]
    # Fractional parts that are equal, but for this rounding, leave intervals whose vector may be wrong.
    rounding = mean.size(1) * torch.finfo(mean.dtype).eps
    return vectors, torch.where(weights > rounding, weights, 0.0)
