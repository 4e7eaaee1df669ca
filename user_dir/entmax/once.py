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
    """The identity, which raises an error where its result is differentiated."""

    @staticmethod
    def forward(ctx: Any, error: str, *grads: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        ctx.error = error
        return tuple(None if grad is None else grad.view_as(grad) for grad in grads)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        raise RuntimeError(ctx.error)


def once_differentiable(error: str) -> Callable:
    """Decorator of the ``backward`` of an autograd function that has no second derivative.

    Args:
        error: message of the RuntimeError that differentiating its gradients raises.
    """

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def once(ctx: Any, *incoming: Any) -> Any:
            if not torch.is_grad_enabled():
                return backward(ctx, *incoming)
            with torch.no_grad():
                grads = backward(ctx, *incoming)
            grads = grads if isinstance(grads, tuple) else (grads,)
            return _Once.apply(
                error, *(None if grad is None else grad.detach().requires_grad_() for grad in grads)
            )

        return once

    return decorate
