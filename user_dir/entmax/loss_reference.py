"""Reference implementation of the α-entmax loss in plain torch, for float32 and float64 on any device.

With p = α-entmax(z), the loss of the scores z of a token y is the Fenchel-Young loss of Tsallis' α-entropy H,

    L(z, y) = (p − e_y)ᵀ z + H(p),  H(p) = (1 − Σ p^α) / (α (α − 1)),  ∂L/∂z = p − e_y

(Peters et al. 2019, https://arxiv.org/abs/1905.05702, equations 8 and 11; Blondel et al. 2020,
https://arxiv.org/abs/1901.02324). For α → 1 it is cross-entropy. Label smoothing s adds s (z_y − mean z), as
for the smoothed target (1 − s) e_y + s/n without its constant entropy (Peters and Martins 2021,
https://arxiv.org/abs/2103.10291).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .reference import entmax_forward


class Settings(NamedTuple):
    """Settings of the loss; see :func:`user_dir.entmax.entmax_loss`."""

    alpha: float  # above 1, up to 2
    label_smoothing: float
    ignore_index: int


def new_results(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a kernel fills in place of these functions: losses, support, and (max z, λ, Σ p) by row."""
    rows = scores.size(0)
    return scores.new_empty(rows), torch.empty_like(target), scores.new_empty(rows, 3)


def loss_forward(scores: Tensor, target: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Tensor]:
    """Losses (rows,), sizes of the support (rows,), and what a kernel's backward pass needs: here nothing.

    A row with a score of NaN or +∞ has the loss NaN; a row that is all −∞ has the loss ∞ and no support.

    Args:
        scores: (rows, n), float32 or float64.
        target: (rows,), from 0 to n − 1 or ``ignore_index``.
    """
    alpha, label_smoothing, ignore_index = settings
    eps = alpha - 1
    ignored = target == ignore_index
    top = scores.amax(-1, keepdim=True)
    empty = top == float("-inf")
    z = scores - top.masked_fill(empty, 0.0)
    own = z.gather(-1, target.masked_fill(ignored, 0)[:, None]).squeeze(-1)
    weights = entmax_forward(z, torch.tensor(alpha, dtype=torch.float64, device=z.device))
    there = weights != 0  # true for NaN too, so that NaN propagates
    log_p = torch.where(there, weights, 1.0).log()
    entropy = -(weights * torch.expm1(eps * log_p)).sum(-1) / (alpha * eps)
    losses = torch.where(there, weights * z, 0.0).sum(-1) + entropy - own
    if label_smoothing:
        losses = losses + label_smoothing * (own - z.mean(-1))
    losses = losses.masked_fill(empty.squeeze(-1), float("inf")).masked_fill(ignored, 0.0)
    # p is NaN throughout if a score is
    support = (weights > 0).sum(-1).masked_fill(ignored, 0)
    return losses, support, scores.new_zeros(len(scores), 3)


def loss_backward(
    scores: Tensor, target: Tensor, settings: Settings, solutions: Tensor, grad: Tensor
) -> Tensor:
    """The gradient of the scores from that of the losses, (rows,)."""
    alpha = torch.tensor(settings.alpha, dtype=torch.float64, device=scores.device)
    return gradient_of_scores(entmax_forward(scores, alpha), target, settings, grad)


def gradient_of_scores(weights: Tensor, target: Tensor, settings: Settings, grad: Tensor) -> Tensor:
    """grad · (p − (1 − s) e_y − s/n) from the weights p, in which it can be differentiated."""
    _, label_smoothing, ignore_index = settings
    ignored = target == ignore_index
    empty = (weights == 0).all(-1)
    smoothed = weights - label_smoothing / weights.size(-1)
    own = torch.zeros_like(weights).scatter(-1, target.masked_fill(ignored, 0)[:, None], 1 - label_smoothing)
    return (grad[:, None] * (smoothed - own)).masked_fill((ignored | empty)[:, None], 0.0)
