"""Weights of linear layers laid out for many products on a CPU, by ``packed.h``; without torch."""

from __future__ import annotations

import ctypes

import numpy as np

from ..cpp.build import INTEGER, POINTER, addresses
from .kernels import kernels

_MOST_INT8 = (2**31 - 1) // (255 * 127)  # products that certainly fit into a sum of 32 bits


class Packed(ctypes.Structure):
    """The structure ``Packed`` of ``packed.h``."""

    _fields_ = [("inputs", INTEGER), ("outputs", INTEGER), ("panels", POINTER), ("scales", POINTER)]
    _fields_ += [("bias", POINTER), ("instructions", INTEGER)]


class PackedLinear:
    """W and b of x ↦ xWᵀ + b.

    Args:
        weight: W, (outputs, inputs), float32 or float64; it is copied.
        bias: b, (outputs,), of the same type; None for 0.
        int8: as 8-bit integers, with a scale for each output.

    Attributes:
        packed: what C++ needs to know; valid as long as this object exists.
        address: where it lies.

    Raises:
        ValueError: there are too many inputs for integers.
    """

    def __init__(self, weight: np.ndarray, bias: np.ndarray | None = None, int8: bool = False):
        outputs, inputs = weight.shape
        if int8 and inputs > _MOST_INT8:
            raise ValueError(f"8-bit integers: a layer has {inputs} inputs, more than {_MOST_INT8}")
        weight = np.ascontiguousarray(weight)
        self._bias = None if bias is None else np.ascontiguousarray(bias)
        size = kernels["packed_bytes", weight.dtype](inputs, outputs, int8)
        self._memory = np.empty(size + 63, dtype=np.uint8)
        at = (self._memory.ctypes.data + 63) // 64 * 64
        self.packed = Packed()
        self.address = ctypes.addressof(self.packed)
        places = addresses(weight, self._bias)
        kernels["pack", weight.dtype](*places, inputs, outputs, int8, at, self.address)
