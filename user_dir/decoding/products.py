"""x ↦ xWᵀ + b on a CPU, with weights prepared once for many x, by ``products.h``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .kernels import kernels
from .packed_linear import PackedLinear


class Product:
    """The function x ↦ xWᵀ + b of linear layers whose outputs stand side by side.

    The result of a row does not depend on the other rows, to the bit.

    Args:
        layers: linear layers with the same input, in float32 or float64.
        relu: whether max(·, 0) follows, in the same pass.
    """

    int8 = False

    def __init__(self, *layers: nn.Linear, relu: bool = False):
        weight = torch.cat([layer.weight.detach() for layer in layers])
        bias = None
        if any(layer.bias is not None for layer in layers):
            bias = torch.cat([_bias(layer) for layer in layers]).numpy()
        self._relu, self._dtype = int(relu), weight.dtype
        self._linear = PackedLinear(weight.numpy(), bias, self.int8)
        self._multiply = kernels["multiply", self._dtype]

    def __call__(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs), of the layers' type."""
        if x.size(-1) != self._linear.packed.inputs or x.dtype != self._dtype:
            raise ValueError(
                f"{tuple(x.shape)} of {x.dtype} instead of (…, {self._linear.packed.inputs}) of {self._dtype}"
            )
        if x.dim() != 2 or x.stride(1) != 1:
            x = x.contiguous()
        outputs = self._linear.packed.outputs
        y = x.new_empty(*x.shape[:-1], outputs)
        rows = y.numel() // outputs
        self._multiply(
            self._linear.address, x.data_ptr(), rows, x.stride(-2), y.data_ptr(), outputs, self._relu
        )
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
