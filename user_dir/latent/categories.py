"""Sparse distributions over choices that can be enumerated."""

from __future__ import annotations

import torch
from torch import Tensor

from ..entmax import entmax as entmax_weights
from .checks import check_k, check_scores
from .support import Support


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

    If one of the k gets no weight, so would every choice that was left out: the result, and its gradient,
    are those of α-entmax over all choices, and the example is certified.

    Args:
        scores: (B, n); −∞ excludes a choice.
        k: the largest number of choices of an example.
        alpha: as for :func:`entmax`. At α = 1 no choice gets exactly 0, so nothing is certified if k < n.

    Raises:
        ValueError: as for :func:`entmax`; or k is below 1.

    Source: Correia et al. 2020 (https://arxiv.org/abs/2007.01919), section 3.1.
    """
    check_scores(scores)
    check_k(k)
    choices = scores.size(1)
    if k >= choices:
        best, ids = scores, torch.arange(choices, device=scores.device).expand_as(scores)
    else:
        best, ids = scores.topk(k, dim=1)
    weights = entmax_weights(best, alpha)
    certified = (weights == 0).any(1) if k < choices else torch.ones_like(best[:, 0], dtype=torch.bool)
    return Support.of(ids, weights, certified)


def topk_sparsemax(scores: Tensor, k: int) -> Support:
    """Sparsemax over the k best of n choices: :func:`topk_entmax` with α = 2."""
    return topk_entmax(scores, k, 2.0)
