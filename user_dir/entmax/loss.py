"""The α-entmax loss: checks its arguments."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .alpha_checks import check_targets
from .differentiable_loss import loss_and_support
from .operators import is_eager
from .reference import working_dtype


def entmax_loss(
    scores: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    """The α-entmax loss of each target: cross-entropy at α = 1, the sparsemax loss at α = 2.

    It is to :func:`~user_dir.entmax.entmax` what cross-entropy is to softmax: its gradient is p − e_y, and it
    is 0 where all weight is on the target. Unlike −log p it is finite where the target has no weight.

    Args:
        scores: (…, n), of any floating dtype; half precision is computed in float32.
        target: (…), integers from 0 to n − 1, or ``ignore_index``.
        alpha: a number from 1 to 2.
        label_smoothing: s from 0 to 1; adds s (z_y − mean z), as ``cross_entropy`` of torch does at α = 1. It
            needs finite scores.
        ignore_index: targets with a loss, and a gradient, of 0.

    Returns:
        The losses, not reduced, in the shape of ``target``; float64 for float64 scores, else float32.
        Differentiable, also twice, in ``scores``. The loss is ∞ if the score of the target is −∞, and NaN if
        a score is NaN or +∞. At α = 1 it is torch's cross-entropy, also NaN for a row that is all −∞.

    Raises:
        ValueError: α or ``label_smoothing`` is out of range, shapes do not match, or the dtype of ``scores``
            or ``target`` is wrong; on a CPU also if a target is out of range (the message names the value).

    Implementations are selected as for :func:`~user_dir.entmax.entmax`, by ENTMAX_BACKEND.

    Source: Peters et al. 2019 (https://arxiv.org/abs/1905.05702), equation 8.
    """
    return entmax_loss_and_support(
        scores, target, alpha, label_smoothing=label_smoothing, ignore_index=ignore_index
    )[0]


def entmax_loss_and_support(
    scores: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> tuple[Tensor, Tensor]:
    """As :func:`entmax_loss`, also with the number of entries with weight, (…): 0 for ignored targets."""
    _check(scores, target, alpha, label_smoothing)
    eager = is_eager(scores, target)
    if eager:  # else the operator checks them
        check_targets(target, scores.size(-1), ignore_index)
    shape, n = target.shape, scores.size(-1)
    if scores.numel() == 0:
        return scores.sum(-1).to(working_dtype(scores.dtype)), torch.zeros_like(target)
    rows, targets = scores.reshape(-1, n), target.reshape(-1).long().contiguous()
    settings = (float(alpha), float(label_smoothing), ignore_index)
    if alpha == 1:
        losses, support = _cross_entropy(rows, targets, *settings[1:])
    else:
        losses, support = loss_and_support(rows, targets, *settings, eager)
    return losses.view(shape), support.view(shape)


def _check(scores: Tensor, target: Tensor, alpha: float, label_smoothing: float) -> None:
    if isinstance(alpha, Tensor) and alpha.requires_grad:
        raise ValueError("the entmax loss has no gradient of alpha; pass alpha.item() instead of the tensor")
    if not 1 <= alpha <= 2:
        raise ValueError(f"alpha of the entmax loss must be from 1 to 2, not {alpha}")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be from 0 to 1, not {label_smoothing}")
    if not scores.is_floating_point():
        raise ValueError(f"scores must be of a floating dtype, not {scores.dtype}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(f"targets must be integers, not {target.dtype}")
    if scores.dim() == 0 or scores.shape[:-1] != target.shape:
        raise ValueError(
            f"scores of shape {tuple(scores.shape)} need targets of shape {tuple(scores.shape[:-1])}, "
            f"not {tuple(target.shape)}"
        )


def _cross_entropy(
    rows: Tensor, target: Tensor, label_smoothing: float, ignore_index: int
) -> tuple[Tensor, Tensor]:
    rows = rows.to(working_dtype(rows.dtype))
    losses = F.cross_entropy(
        rows, target, reduction="none", label_smoothing=label_smoothing, ignore_index=ignore_index
    )
    support = (rows.detach() > float("-inf")).sum(-1)
    return losses, support.masked_fill(target == ignore_index, 0)
