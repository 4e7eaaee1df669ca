"""x ↦ xWᵀ + b on a CPU, with weights prepared once for many x, by ``products.h``."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn

from ..entmax.build import INTEGER, POINTER, addresses
from .cpu_steps import kernels

_MOST_INT8 = (2**31 - 1) // (255 * 127)  # products that certainly fit into a sum of 32 bits


class Packed(ctypes.Structure):
    """The structure ``Packed`` of ``products.h``."""

    _fields_ = [("inputs", INTEGER), ("outputs", INTEGER), ("panels", POINTER), ("scales", POINTER)]
    _fields_ += [("bias", POINTER), ("instructions", INTEGER)]


class Product:
    """The function x ↦ xWᵀ + b of linear layers whose outputs stand side by side.

    The result of a row does not depend on the other rows, to the bit.

    Args:
        layers: linear layers with the same input, in float32 or float64.
        relu: whether max(·, 0) follows, in the same pass.

    Attributes:
        packed: what C++ needs to know; valid as long as this object exists.
    """

    int8 = False

    def __init__(self, *layers: nn.Linear, relu: bool = False):
        weight = torch.cat([layer.weight.detach() for layer in layers])
        biases = [_bias(layer) for layer in layers]
        self._bias = torch.cat(biases) if any(layer.bias is not None for layer in layers) else None
        self._relu = int(relu)
        (outputs, inputs), self._dtype = weight.shape, weight.dtype
        if self.int8 and inputs > _MOST_INT8:
            raise ValueError(f"8-bit integers: a layer has {inputs} inputs, more than {_MOST_INT8}")
        size = kernels["packed_bytes", self._dtype](inputs, outputs, self.int8)
        self._memory = torch.empty(size + 63, dtype=torch.uint8)
        at = (self._memory.data_ptr() + 63) // 64 * 64
        self.packed = Packed()
        kernels["pack", self._dtype](
            *addresses(weight, self._bias), inputs, outputs, self.int8, at, ctypes.addressof(self.packed)
        )
        self._multiply, self._at = kernels["multiply", self._dtype], ctypes.addressof(self.packed)

    def __call__(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs), of the layers' type."""
        if x.size(-1) != self.packed.inputs or x.dtype != self._dtype:
            raise ValueError(
                f"{tuple(x.shape)} of {x.dtype} instead of (…, {self.packed.inputs}) of {self._dtype}"
            )
        if x.dim() != 2 or x.stride(1) != 1:
            x = x.contiguous()
        outputs = self.packed.outputs
        y = x.new_empty(*x.shape[:-1], outputs)
        rows = y.numel() // outputs
        self._multiply(self._at, x.data_ptr(), rows, x.stride(-2), y.data_ptr(), outputs, self._relu)
        return y


class Int8Product(Product):
    """The same with weights as 8-bit integers, and each row of x rounded to 8 bits: dynamic quantisation.

    Each output has a scale of its own, and each row of x a scale and a zero. A row with NaN or infinity gives
    NaN. All instructions give the same sums.
    """

    int8 = True


def _bias(layer: nn.Linear) -> Tensor:
    weight = layer.weight.detach()
    return weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
