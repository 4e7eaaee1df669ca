"""The α-entmax loss with its gradient: an autograd function for plain tensors, operators for all others."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType
from typing import Any, Optional

import torch
from torch import Tensor

from . import loss_cpu, loss_reference
from .alpha_checks import check_targets
from .merged_vmap import merged_vmap
from .op import entmax
from .operators import define_operator, is_eager, once, transformed
from .reference import working_dtype
from .selection import has_native
from .self_check import loss_check


def loss_and_support(
    scores: Tensor, target: Tensor, alpha: float, label_smoothing: float, ignore_index: int, eager: bool
) -> tuple[Tensor, Tensor]:
    """Losses and sizes of the support of rows of scores; arguments as for ``loss_reference``, any dtype."""
    given = (scores, target, alpha, label_smoothing, ignore_index)
    if eager:
        return _EntmaxLoss.apply(*given, _implementation(scores))
    return _operator(*given)[:2]


def _implementation(scores: Tensor) -> ModuleType:
    device = scores.device.type
    native = _native(device) if has_native(device) else None
    if native is None:
        return loss_reference
    if native is loss_cpu or os.environ.get("ENTMAX_BACKEND") == "native":
        return native
    return (
        loss_reference if loss_check.passes(scores.device, working_dtype(scores.dtype)) is False else native
    )


@functools.cache
def _native(device: str) -> Optional[ModuleType]:
    if device == "cpu":
        return loss_cpu if loss_cpu.kernels.available() else None
    return importlib.import_module(".loss_triton", __package__)


class _EntmaxLoss(torch.autograd.Function):
    """Autograd function around an implementation: a module with the functions of ``loss_reference``."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
        *ctx.settings, ctx.implementation = given
        results = ctx.implementation.loss_forward(_working(scores), target, *ctx.settings)
        losses, support, solutions = results
        ctx.save_for_backward(scores, target, solutions)
        ctx.mark_non_differentiable(support)
        return losses, support

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Optional[Tensor], ...]:
        return _gradient(ctx, grad), *[None] * 5


def _gradient(ctx: Any, grad: Tensor) -> Tensor:
    scores, target, solutions = ctx.saved_tensors
    if torch.is_grad_enabled() or transformed():  # torch itself differentiates the plain formula again
        return _differentiable_gradient(scores, target, grad, *ctx.settings)
    if ctx.implementation is not None and is_eager(scores, grad):
        given = (_working(scores), target, *ctx.settings, solutions, grad)
        return ctx.implementation.loss_backward(*given).to(scores.dtype)
    return _backward_operator(scores, target, *ctx.settings, solutions, grad)


def _differentiable_gradient(
    scores: Tensor, target: Tensor, grad: Tensor, alpha: float, label_smoothing: float, ignore_index: int
) -> Tensor:
    """p − (1 − s) e_y − s/n, times the incoming gradient, for second derivatives."""
    rows, ignored = scores.to(working_dtype(scores.dtype)), (target == ignore_index)[:, None]
    correct = target[:, None].masked_fill(ignored, 0)
    wanted = torch.full_like(rows, label_smoothing / rows.size(1))
    wanted = wanted.scatter_add(1, correct, torch.full_like(rows, 1 - label_smoothing))
    without = ignored | (rows == float("-inf")).all(-1, keepdim=True)
    return ((entmax(rows, alpha) - wanted) * grad[:, None]).masked_fill(without, 0.0).to(scores.dtype)


def _working(scores: Tensor) -> Tensor:
    return scores.to(working_dtype(scores.dtype)).contiguous()


# ---------------------------------------------------------------------------------------- the operators


def _forward(scores: Tensor, target: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, support, and (max z, λ, Σ p) by row: zeros from the reference, whose backward solves anew."""
    check_targets(target, scores.size(-1), settings[2])
    implementation = _implementation(scores)
    results = implementation.loss_forward(_working(scores), target.contiguous(), *settings)
    if implementation is not loss_reference:
        return results
    return *results[:2], torch.zeros_like(_fake_forward(scores, target)[2])


def _fake_forward(scores: Tensor, target: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return loss_reference.new_results(
        scores.new_empty(scores.shape, dtype=working_dtype(scores.dtype)), target
    )


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    scores, target, *ctx.settings = inputs
    ctx.implementation = None
    ctx.save_for_backward(scores, target, output[2])
    ctx.mark_non_differentiable(*output[1:])


def _backward(scores: Tensor, target: Tensor, *given: Any) -> Tensor:
    *settings, solutions, grad = given
    implementation, rows, target = _implementation(scores), _working(scores), target.contiguous()
    if implementation is loss_reference:
        solutions = loss_reference.loss_forward(rows, target, *settings)[2]
    found = implementation.loss_backward(rows, target, *settings, solutions.contiguous(), grad)
    return found.to(scores.dtype)


_SETTINGS = "Tensor scores, Tensor target, float alpha, float label_smoothing, int ignore_index"
_backward_operator = define_operator(
    f"entmax_loss_backward({_SETTINGS}, Tensor solutions, Tensor grad) -> Tensor",
    _backward,
    lambda scores, *given: scores.new_empty(scores.shape),
    once("this gradient of entmax_loss cannot be differentiated again"),
)
_operator = define_operator(
    f"entmax_loss({_SETTINGS}) -> (Tensor, Tensor, Tensor)",
    _forward,
    _fake_forward,
    (_setup_context, lambda ctx, grad, *_: (_gradient(ctx, grad), *[None] * 4)),
    merged_vmap((0, 1)),
)
