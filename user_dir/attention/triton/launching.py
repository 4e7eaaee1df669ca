"""How the Triton kernels of fused attention are launched: constants, options, strides."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import torch
import triton
from torch import Tensor

from ..fused import dense_rows

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
PER_LANE = {2: 32, 4: 16}  # elements of the largest tile per lane
# Triton before 3.3 aborts the process if several groups of four warps multiply a tile of 64 queries.
MAX_WARPS = 16 if TRITON >= (3, 3) else 4
# A float32 product as three TF32 products on tensor cores, as exact as float32 but faster.
# Triton before 3.3 needs more shared memory for them than there is.
EXACT = "tf32x3" if TRITON >= (3, 3) else "ieee"

# Triton's versions whose compiled kernels take all arguments in order, constants included.
DIRECT = (3, 6) <= TRITON <= (3, 7)
# What Triton specialises a kernel on → the compiled kernel, and its constants in order.
_compiled: dict[tuple, tuple[Any, tuple]] = {}


def run(kernel: Any, grid: tuple[int, int, int], arguments: list, constants: dict, options: dict) -> None:
    """Launch a kernel, from its second launch on without Triton's slower binding of arguments."""
    with torch.cuda.device_of(arguments[0]):
        if not DIRECT:
            kernel[grid](*arguments, **constants, **options)
            return
        kinds = [
            argument.bit_length() < 32
            if type(argument) is int
            else (argument.dtype, argument.data_ptr() % 16)
            if isinstance(argument, Tensor)
            else type(argument)
            for argument in arguments
        ]
        key = (kernel, arguments[0].device, *kinds, *constants.values(), *options.values())
        if key in _compiled:
            compiled, ordered = _compiled[key]
            compiled[grid](*arguments, *ordered)
            return
        compiled = kernel[grid](*arguments, **constants, **options)
        if compiled is not None:  # Triton's interpreter returns None
            _compiled[key] = compiled, tuple(constants[n] for n in kernel.arg_names if n in constants)


def schedule(elements: int, size: int, stages: int) -> dict:
    """Warps and stages of a program, given the number of elements of its largest tile and their bytes."""
    warps = max(1, min(MAX_WARPS, elements // (32 * PER_LANE[size])))
    return {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}


@functools.cache
def head_dim_constants(head_dim: int, dtype: torch.dtype) -> dict:
    """The constants of a kernel determined by the head dimension and the dtype of the queries."""
    bucket = bucket_of(head_dim)
    return {"D": bucket, "WHOLE": bucket == head_dim, "COARSE": dtype != torch.float32}


def precision(size: int) -> str:
    """The precision of matrix products, by bytes per number; torch's setting may change between calls."""
    if size < 4:
        return "ieee"
    return EXACT if torch.get_float32_matmul_precision() == "highest" else "tf32"


def bucket_of(count: int) -> int:
    """The next power of two, at least 16, the minimum of tile products."""
    return max(16, 1 << (count - 1).bit_length())


def mask_of(padding: Tensor | None) -> tuple[Tensor | None, int]:
    """A padding mask as bytes, and its stride."""
    if padding is None:
        return None, 0
    padding = dense_rows(padding)
    return padding.view(torch.uint8), padding.stride(0)


def strides_of(*tensors: Tensor) -> tuple[int, list]:
    """A unit that divides all strides over batch, heads and rows; and the tensors, each with its strides."""
    strides: list = [tensor.stride()[:3] for tensor in tensors]
    common = math.gcd(*itertools.chain(*strides))
    if common % 16:  # without the strides of dimensions of size 1, which can be anything
        strides = [[0 if n == 1 else s for n, s in zip(t.shape[:3], t.stride()[:3])] for t in tensors]
        common = math.gcd(*itertools.chain(*strides))
    unit = next(unit for unit in (16, 8, 1) if common % unit == 0)
    arguments: list = []
    for tensor, (batch, head, row) in zip(tensors, strides):
        arguments += (tensor, batch // unit, head // unit, row // unit)
    return unit, arguments
