"""α-entmax with its gradients: an autograd function for plain tensors, and operators for all others."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Optional

import torch
from torch import Tensor

from . import reference
from .alpha_checks import check_range
from .operators import define_operator, is_eager, once, transformed
from .rows import as_rows, from_rows
from .selection import implementation_for


class Entmax(torch.autograd.Function):
    """Autograd function around an implementation; saves only the output and α.

    An implementation is a module with the ``entmax_forward`` and ``entmax_backward`` of ``reference``; the
    forward of ``cpu`` takes masks as well.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, alpha: Tensor, dim: int, implementation: ModuleType, *masks: Any
    ) -> Tensor:
        """Weights; see :func:`reference.entmax_forward`."""
        weights = implementation.entmax_forward(scores, alpha, dim, *masks)
        ctx.save_for_backward(weights, alpha)
        ctx.dim, ctx.implementation, ctx.arguments = dim, implementation, 4 + len(masks)
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
        """Gradients of scores and α; see :func:`reference.entmax_backward`."""
        return *_gradients(ctx, grad), *[None] * (ctx.arguments - 2)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Optional[Tensor]]:
    weights, alpha = ctx.saved_tensors
    given = weights, alpha, grad, ctx.dim, ctx.needs_input_grad[1]
    if torch.is_grad_enabled() or transformed():  # torch itself differentiates the plain formula again
        return reference.entmax_backward(*given)
    if ctx.implementation is not None and is_eager(weights, alpha, grad):
        return ctx.implementation.entmax_backward(*given)
    grad_scores, grad_alpha = entmax_backward(*given)
    return grad_scores, grad_alpha if ctx.needs_input_grad[1] else None


# ---------------------------------------------------------------------------------------- the operators


def _forward(scores: Tensor, alpha: Tensor, dim: int) -> Tensor:
    implementation = implementation_for(scores)
    if implementation is reference:
        check_range(alpha)
    return _in_rows(implementation.entmax_forward(scores, alpha, dim), dim)


def _fake_forward(scores: Tensor, alpha: Tensor, dim: int) -> Tensor:
    return _in_rows(torch.empty_like(scores), dim)


def _in_rows(tensor: Tensor, dim: int) -> Tensor:
    """The same numbers in the memory order of the kernels: one row after the other."""
    if tensor.numel() == 0:
        return tensor.contiguous()
    return from_rows(as_rows(tensor, dim), tensor, dim)


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    _, alpha, ctx.dim = inputs
    ctx.implementation = None
    ctx.save_for_backward(output, alpha)


def _operator_gradients(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
    return *_gradients(ctx, grad), None


def _vmap(operator: Callable, info: Any, in_dims: tuple, scores: Tensor, alpha: Tensor, dim: int) -> tuple:
    scores_dim, alpha_dim, _ = in_dims
    scores = (
        scores.expand(info.batch_size, *scores.shape) if scores_dim is None else scores.movedim(scores_dim, 0)
    )
    if alpha_dim is not None:
        alpha = alpha.movedim(alpha_dim, 0)
        alpha = alpha.reshape(alpha.shape[:1] + (1,) * (scores.dim() - alpha.dim()) + alpha.shape[1:])
    if scores.dim() == 1:  # a single score for each entry of the batch
        alpha = alpha if alpha_dim is None else alpha.unsqueeze(-1)
        return operator(scores.unsqueeze(-1), alpha, -1).squeeze(-1), 0
    return operator(scores, alpha, dim if dim < 0 else dim + 1), 0


def _backward(
    weights: Tensor, alpha: Tensor, grad: Tensor, dim: int, need_alpha: bool
) -> tuple[Tensor, Tensor]:
    implementation = implementation_for(weights)
    grad_scores, grad_alpha = implementation.entmax_backward(weights, alpha, grad, dim, need_alpha)
    grad_alpha = alpha.new_empty(0) if grad_alpha is None else grad_alpha.contiguous()
    return _in_rows(grad_scores, dim), grad_alpha


def _fake_backward(
    weights: Tensor, alpha: Tensor, grad: Tensor, dim: int, need_alpha: bool
) -> tuple[Tensor, Tensor]:
    grad_alpha = alpha.new_empty(alpha.shape if need_alpha else 0)
    return _in_rows(torch.empty_like(weights), dim), grad_alpha


entmax_backward = define_operator(
    "entmax_backward(Tensor weights, Tensor alpha, Tensor grad, int dim, bool need_alpha) "
    "-> (Tensor, Tensor)",
    _backward,
    _fake_backward,
    once("the gradient of entmax cannot be differentiated here"),
)
entmax_operator = define_operator(
    "entmax(Tensor scores, Tensor alpha, int dim) -> Tensor",
    _forward,
    _fake_forward,
    (_setup_context, _operator_gradients),
    _vmap,
)


def onnx_translations() -> dict[Callable, Any]:
    """The ``custom_translation_table`` with which ``torch.onnx.export`` exports entmax and attention.

    Raises ModuleNotFoundError if onnxscript is not installed.

    Example::

        torch.onnx.export(layer, (x, y, z), dynamo=True, custom_translation_table=onnx_translations())
    """
    from . import onnx

    return {entmax_operator: onnx.entmax}
