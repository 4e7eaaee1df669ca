"""The public op: checks its arguments, then picks an implementation."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Union

import torch
from torch import Tensor

from . import reference
from .reference import working_dtype


def entmax(scores: Tensor, alpha: Union[float, Tensor], dim: int = -1) -> Tensor:
    """α-entmax of ``scores`` along ``dim``: softmax at α = 1, sparsemax at α = 2, sparse in between.

    Args:
        scores: any shape and floating dtype; −inf is a score of weight exactly 0. Half precision is
            computed in float32.
        alpha: a number, or a tensor that broadcasts against ``scores`` with size 1 at ``dim``: for one α
            per head and scores (B, H, T, S), shape (H, 1, 1). At least 1; above 2 a slower solver is used.
        dim: the dimension along which the weights sum to 1.

    Returns:
        Weights of the shape and dtype of ``scores``; zeros for a row that is all −inf. Differentiable in
        ``scores`` and, when it is a tensor, in ``alpha``.

    Raises:
        ValueError: α is below 1 or NaN, or its shape does not fit.

    Source: Peters et al. 2019 (https://arxiv.org/abs/1905.05702), equation 3; the gradient of α is
    Proposition 1 of Correia et al. 2019 (https://arxiv.org/abs/1909.00015).
    """
    if not scores.is_floating_point():
        raise ValueError(f"scores must be of a floating dtype, not {scores.dtype}")
    if isinstance(alpha, Tensor):
        _check_shape(alpha, scores, dim)
        _check_range(alpha.detach())
    elif not 1 <= alpha < math.inf:
        raise ValueError(f"alpha must be at least 1 and finite, not {alpha}")
    elif alpha == 1:
        return _softmax(scores, dim)
    else:
        alpha = torch.tensor(alpha, dtype=torch.float64, device=scores.device)
    return Entmax.apply(scores, alpha, dim, reference)


class Entmax(torch.autograd.Function):
    """Autograd around an implementation; saves the output and α, nothing else.

    An implementation is a module with the ``entmax_forward`` and ``entmax_backward`` of ``reference``.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, alpha: Tensor, dim: int, implementation: ModuleType) -> Tensor:
        """Weights; see :func:`reference.entmax_forward`."""
        weights = implementation.entmax_forward(scores, alpha, dim)
        ctx.save_for_backward(weights, alpha)
        ctx.dim, ctx.implementation = dim, implementation
        return weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor):
        """Gradients of scores and α; see :func:`reference.entmax_backward`."""
        weights, alpha = ctx.saved_tensors
        need_alpha = ctx.needs_input_grad[1]
        return (*ctx.implementation.entmax_backward(weights, alpha, grad, ctx.dim, need_alpha), None, None)


def _softmax(scores: Tensor, dim: int) -> Tensor:
    """Torch's own softmax, but zeros (and zero gradients) for rows that are all −inf."""
    if scores.numel() == 0:
        return torch.softmax(scores, dim)
    dtype = working_dtype(scores.dtype)
    weights = torch.softmax(scores, dim, dtype=dtype)
    # Such a row is all NaN, so its first entry tells; a NaN that came with the scores stays.
    if weights.select(dim, 0).isnan().any():
        empty = (scores == float("-inf")).all(dim, keepdim=True)
        weights = torch.softmax(scores.masked_fill(empty, 0.0), dim, dtype=dtype).masked_fill(empty, 0.0)
    return weights.to(scores.dtype)


def _check_shape(alpha: Tensor, scores: Tensor, dim: int) -> None:
    if not -scores.dim() <= dim < max(scores.dim(), 1):
        raise ValueError(f"dim {dim} is out of range for scores of shape {tuple(scores.shape)}")
    padded = (1,) * (scores.dim() - alpha.dim()) + tuple(alpha.shape)
    fits = len(padded) == scores.dim() and all(a in (1, s) for a, s in zip(padded, scores.shape))
    if not fits or (padded and padded[dim] != 1):
        raise ValueError(
            f"alpha of shape {tuple(alpha.shape)} must broadcast against scores of shape "
            f"{tuple(scores.shape)} with size 1 at dim {dim}; for one value per head of scores "
            "(B, H, T, S), pass alpha.view(-1, 1, 1)"
        )


def _check_range(alpha: Tensor) -> None:
    valid = (alpha >= 1) & (alpha < math.inf)
    if not bool(valid.all()):
        value = alpha[~valid].flatten()[0].item()
        raise ValueError(f"alpha must be at least 1 and finite, not {value:g}")
