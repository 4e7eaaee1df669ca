"""Linear layers by oneDNN where it is faster than PyTorch's own (:mod:`.linear_choice`)."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..entmax.operators import exporting_to_onnx
from .linear_choice import prefers_onednn


class Linear(nn.Linear):
    """``nn.Linear`` by oneDNN, forward and backward, if :func:`suits_onednn`.

    oneDNN comes with PyTorch, which otherwise multiplies float32 matrices by MKL.
    """

    @classmethod
    def sharing(cls, layer: nn.Linear) -> Linear:
        """The same layer, with the same parameters."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)  # draws no random numbers
        made.in_features, made.out_features = layer.in_features, layer.out_features
        made.weight, made.bias = layer.weight, layer.bias
        return made.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        if not torch.jit.is_scripting():
            return linear(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


def use_onednn(model: nn.Module) -> None:
    """Replace the linear layers of a model, except those with hooks, by :class:`Linear`; parameters stay."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and not (child._forward_hooks or child._forward_pre_hooks):
                setattr(module, name, Linear.sharing(child))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``torch.nn.functional.linear``, by oneDNN if :func:`suits_onednn`."""
    if suits_onednn(x, weight):
        return _Product.apply(x, weight, bias)
    return F.linear(x, weight, bias)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return multiply(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        product = F.linear if torch.is_grad_enabled() else multiply  # oneDNN's has no derivative
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_x = product(rows.contiguous(), weight.t(), None).view(x.shape) if needs_x else None
        # Twice as fast as rows.t() @ x where the weight has many rows: oneDNN reads both as they are.
        grad_weight = product(x.flatten(0, -2).t(), rows.t(), None).t() if needs_weight else None
        return grad_x, grad_weight, rows.sum(0) if ctx.has_bias and needs_bias else None


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """xWᵀ + b by oneDNN, (R, inputs) → (R, outputs)."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def suits_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is faster, and takes these."""
    return (
        x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and x.dim() > 1
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not exporting_to_onnx()
        and has_onednn()
        and prefers_onednn()
    )


@functools.cache
def has_onednn() -> bool:
    """Whether oneDNN's operators exist, which are not public, and multiply as PyTorch does."""
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    x, weight = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3) - 5
    try:
        y, z = multiply(x, weight, torch.ones(4)), multiply(x, weight, None)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return torch.equal(y, x @ weight.T + 1) and torch.equal(z, x @ weight.T)
