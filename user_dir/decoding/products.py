"""x ↦ xWᵀ + b on a CPU, with weights prepared once for many x."""

from __future__ import annotations

import functools
import warnings

import torch
from torch import Tensor, nn

from ..modules.linear import has_onednn, multiply, packed


class Product:
    """The function x ↦ xWᵀ + b of linear layers whose outputs stand side by side.

    float32 weights are laid out for oneDNN, which PyTorch brings along: on AMD's processors it is up to 2.4
    times as fast as MKL, which ``torch.nn.functional.linear`` uses.

    Args:
        layers: linear layers with the same input.
        relu: whether max(·, 0) follows, in the same pass.
    """

    def __init__(self, *layers: nn.Linear, relu: bool = False):
        self._weight = torch.cat([layer.weight.detach() for layer in layers])
        biases = [_bias(layer) for layer in layers]
        self._bias = torch.cat(biases) if any(layer.bias is not None for layer in layers) else None
        self._relu = relu
        self._packed = packed(self._weight) if self._weight.dtype == torch.float32 and has_onednn() else None

    def __call__(self, x: Tensor) -> Tensor:
        """(R, inputs) → (R, outputs)."""
        if self._packed is not None and x.numel():
            return multiply(x, self._packed, self._bias, "relu" if self._relu else "none")
        y = nn.functional.linear(x, self._weight, self._bias)
        return y.relu_() if self._relu else y


class Int8Product(Product):
    """The same with weights as 8-bit integers, and x rounded to 8 bits at each call: dynamic quantisation.

    Each output has a scale of its own. Without VNNI instructions sums of two products saturate at 16 bits, so
    x is rounded to 7 bits there.
    """

    def __init__(self, *layers: nn.Linear, relu: bool = False):
        self._relu = relu
        weight = torch.cat([layer.weight.detach() for layer in layers]).float()
        bias = torch.cat([_bias(layer) for layer in layers]).float()
        scales = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch announces a successor
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self._prepacked = torch.ops.quantized.linear_prepack(rounded, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """(R, inputs) → (R, outputs)."""
        name = "linear_relu_dynamic" if self._relu else "linear_dynamic"
        return getattr(torch.ops.quantized, name)(x.float(), self._prepacked, not has_vnni()).to(x.dtype)


@functools.cache
def has_vnni() -> bool:
    """Whether the processor sums products of 8-bit integers in 32 bits; false if PyTorch does not tell."""
    return bool(getattr(torch.cpu, "_is_vnni_supported", lambda: False)())


def int8_unavailable() -> str | None:
    """Why this PyTorch cannot multiply integers; None if it can."""
    if torch.backends.quantized.engine in (None, "none"):
        return "this PyTorch has no quantised operators"
    return None


def _bias(layer: nn.Linear) -> Tensor:
    weight = layer.weight.detach()
    return weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
