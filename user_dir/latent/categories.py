"""Sparse distributions over choices that can be enumerated."""

from __future__ import annotations

import torch
from torch import Tensor

from ..entmax import entmax as entmax_weights
from ..entmax.reference import working_dtype
from .support import Support, check_k, check_scores


def entmax(scores: Tensor, alpha: float | Tensor) -> Support:
    """The support of α-entmax over n choices.

    Args:
        scores: (B, n); −∞ excludes a choice.
        alpha: at least 1, a number or a tensor that broadcasts to (B, 1).

    Raises:
        ValueError: scores are NaN, +∞ or all −∞ for an example; α is below 1 or NaN.
    """
    check_scores(scores)
    return topk_entmax(scores, scores.size(1), alpha)


def sparsemax(scores: Tensor) -> Support:
    """The support of sparsemax over n choices: :func:`entmax` with α = 2.

    Source: Martins & Astudillo 2016 (https://arxiv.org/abs/1602.02068).
    """
    return entmax(scores, 2.0)


def topk_entmax(scores: Tensor, k: int, alpha: float | Tensor) -> Support:
    """α-entmax over the k best of n choices.

    If one of the k gets no weight, no choice that was left out would get any: the result, and its gradient,
    are those of α-entmax over all choices, and the example is certified. A weight that is 0 only because it
    underflows does not count (:func:`is_certified`).

    Args:
        scores: (B, n); −∞ excludes a choice.
        k: the largest number of choices of an example.
        alpha: as for :func:`entmax`. No example with α = 1 is certified if k < n.

    Source: Correia et al. 2020 (https://arxiv.org/abs/2007.01919), section 3.1.
    """
    check_scores(scores)
    check_k(k)
    choices = scores.size(1)
    if k >= choices:
        best, ids = scores, torch.arange(choices, device=scores.device).expand_as(scores)
    else:
        best, ids = scores.topk(k, dim=1)
    best = best.to(working_dtype(scores.dtype))
    weights = entmax_weights(best, alpha)
    certified = is_certified(best, weights, alpha) | (k >= choices)
    return Support.of(ids, weights.to(scores.dtype), certified)


@torch.no_grad()
def is_certified(scores: Tensor, weights: Tensor, alpha: float | Tensor) -> Tensor:
    """Whether the worst candidate is below the threshold of α-entmax, so that its weight is exactly 0.

    With ε = α − 1, p_i = [u_i]₊^(1/ε) for a u_i that is linear in the score: u_i = u_1 − ε (z_1 − z_i), and
    u_1 = p_1^ε of the best candidate is known well. The worst has no weight because u ≤ 0, not because a
    power of a small u underflows, as it does for α near 1. At α = 1, u = 1 for all, and nothing is certified.

    Args:
        scores: (B, k), those of the candidates.
        weights: (B, k), their α-entmax.
        alpha: as for :func:`entmax`.

    Returns:
        (B,).
    """
    eps = torch.as_tensor(alpha, dtype=torch.float64, device=scores.device) - 1
    eps = eps.expand(len(scores), 1).squeeze(1)
    spread = (scores.amax(1) - scores.amin(1)).double()
    # ε · ∞ is NaN at α = 1, which certifies nothing either.
    least = weights.amax(1).double().pow(eps) - eps * spread
    rounding = 8 * torch.finfo(scores.dtype).eps * eps.clamp_min(1)  # error of the solvers in u_1
    return (weights.amin(1) == 0) & (least <= rounding)


def topk_sparsemax(scores: Tensor, k: int) -> Support:
    """Sparsemax over the k best of n choices: :func:`topk_entmax` with α = 2."""
    return topk_entmax(scores, k, 2.0)
