"""The α-entmax loss: checks its arguments, chooses an implementation, and is differentiable."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import reference
from .checks import check_targets
from .op import entmax, implementation_for
from .operators import define_operator, once, transformed
from .reference import LossSettings, working_dtype


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
            or ``target`` is wrong; on a CPU also if a target is out of range (at α = 1 torch's
            IndexError).

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
    """The :func:`entmax_loss`, and the number of entries with weight, (…): 0 for ignored targets."""
    _check(scores, target, alpha, label_smoothing)
    shape, n = target.shape, scores.size(-1)
    if scores.numel() == 0:
        return scores.sum(-1).to(working_dtype(scores.dtype)), torch.zeros_like(target)
    rows, targets = scores.reshape(-1, n), target.reshape(-1).long().contiguous()
    settings = LossSettings(float(alpha), float(label_smoothing), ignore_index)
    if alpha == 1:
        losses, support = _cross_entropy(rows, targets, settings)
    else:
        losses, support, _ = entmax_loss_operator(rows, targets, *settings)
    return losses.view(shape), support.view(shape)


def _check(scores: Tensor, target: Tensor, alpha: float, label_smoothing: float) -> None:
    if isinstance(alpha, Tensor) and alpha.requires_grad:
        raise ValueError("the entmax loss has no gradient of alpha")
    if not 1 <= alpha <= 2:
        raise ValueError(f"alpha of the entmax loss must be from 1 to 2, not {alpha}")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be from 0 to 1, not {label_smoothing}")
    if not scores.is_floating_point():
        raise ValueError(f"scores must be of a floating dtype, not {scores.dtype}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise ValueError(f"targets must be integers, not {target.dtype}")
    if scores.dim() == 0 or scores.shape[:-1] != target.shape:
        shapes = tuple(scores.shape), tuple(target.shape)
        raise ValueError("scores of shape {} and targets of shape {} do not fit".format(*shapes))


def _cross_entropy(rows: Tensor, target: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor]:
    rows, (_, smoothing, ignored) = rows.to(working_dtype(rows.dtype)), settings
    options: dict[str, Any] = {"reduction": "none", "label_smoothing": smoothing, "ignore_index": ignored}
    losses = F.cross_entropy(rows, target, **options)
    support = (rows.detach() > float("-inf")).sum(-1)
    return losses, support.masked_fill(target == ignored, 0)


def _working(scores: Tensor) -> Tensor:
    return scores.to(working_dtype(scores.dtype)).contiguous()


def _forward(scores: Tensor, target: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    check_targets(target, scores.size(-1), settings[2])
    problem = _working(scores), target.contiguous(), LossSettings(*settings)
    return implementation_for(scores).loss_forward(*problem)


def _fake_forward(scores: Tensor, target: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    working = scores.new_empty(scores.shape, dtype=working_dtype(scores.dtype))
    return reference.new_loss_results(working, target)


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    scores, target, *settings = inputs
    ctx.settings = LossSettings(*settings)
    ctx.save_for_backward(scores, target, output[2])
    ctx.mark_non_differentiable(*output[1:])


def _gradient(ctx: Any, grad: Tensor) -> Tensor:
    scores, target, solutions = ctx.saved_tensors
    if torch.is_grad_enabled() or transformed():  # for a second derivative, torch uses the plain formula
        weights = entmax(_working(scores), ctx.settings.alpha)
        return reference.gradient_of_scores(weights, target, ctx.settings, grad).to(scores.dtype)
    return entmax_loss_backward(scores, target, *ctx.settings, solutions, grad)


def _backward(scores: Tensor, target: Tensor, *operands: Any) -> Tensor:
    settings, (solutions, grad) = LossSettings(*operands[:3]), operands[3:]
    problem = _working(scores), target.contiguous(), settings, solutions.contiguous()
    return implementation_for(scores).loss_backward(*problem, grad).to(scores.dtype)


_SETTINGS = "Tensor scores, Tensor target, float alpha, float label_smoothing, int ignore_index"
entmax_loss_backward = define_operator(
    f"entmax_loss_backward({_SETTINGS}, Tensor solutions, Tensor grad) -> Tensor",
    _backward,
    lambda scores, *_: scores.new_empty(scores.shape),
    once("this gradient of entmax_loss cannot be differentiated again"),
)
entmax_loss_operator = define_operator(
    f"entmax_loss({_SETTINGS}) -> (Tensor, Tensor, Tensor)",
    _forward,
    _fake_forward,
    (_setup_context, lambda ctx, grad, *_: (_gradient(ctx, grad), *[None] * 4)),
)
