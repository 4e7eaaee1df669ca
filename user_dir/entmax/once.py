"""Gradients that cannot be differentiated again say so.

torch's ``once_differentiable`` raises an error only if an incoming gradient requires a gradient itself. That
of a scalar loss does not, so a gradient penalty or a Hessian would silently lose the function's contribution.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor


class _Once(torch.autograd.Function):
    """The identity of some gradients, which raises an error where they are differentiated.

    They depend on all further arguments, without which autograd would find no path from a gradient to the
    function's inputs, and take its derivative for 0.
    """

    @staticmethod
    def forward(ctx: Any, error: str, count: int, *given: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        ctx.error = error
        return tuple(None if grad is None else grad.view_as(grad) for grad in given[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        raise RuntimeError(ctx.error)


def once_differentiable(error: str) -> Callable:
    """Decorator of the ``backward`` of an autograd function that has no second derivative.

    That is called with ctx, the saved tensors and the incoming gradients. Each differentiable input must be
    among the saved tensors, itself or as a tensor made of it outside of the function: a copy that the
    function makes has no path to the input.

    Args:
        error: message of the RuntimeError that differentiating its gradients raises.
    """

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def once(ctx: Any, *incoming: Any) -> Any:
            saved = ctx.saved_tensors  # read once: activation checkpointing refuses a second time
            if not torch.is_grad_enabled():
                return backward(ctx, saved, *incoming)
            with torch.no_grad():
                grads = backward(ctx, saved, *incoming)
            grads = grads if isinstance(grads, tuple) else (grads,)
            fresh = (None if grad is None else grad.detach().requires_grad_() for grad in grads)
            sources = (x for x in (*saved, *incoming) if x is not None and x.requires_grad)
            return _Once.apply(error, len(grads), *fresh, *sources)

        return once

    return decorate
