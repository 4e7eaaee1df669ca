"""The kernel of attention for the CPU, ``cpu_attention.cpp``: scores, weights and output in one pass."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor

from ..entmax.alpha_checks import check_range
from ..entmax.build import INTEGER, POINTER, NativeKernels
from ..entmax.reference import working_dtype
from .fused_kernel import FusedKernel
from .head_layouts import empty_output, in_heads
from .inputs import KernelInputs

# With more keys the kernel looks for queries with few keys in their support.
MAX_DENSE_KEYS = 160
# Storage format of tensors; half precision is computed in float32.
STORAGE = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
_OUT_OF_RANGE = -1
_SETTINGS = [POINTER, INTEGER] + [POINTER] * 2 + [INTEGER, ctypes.c_double, INTEGER]
_FORWARD = [POINTER] * 6 + _SETTINGS + [INTEGER] + [POINTER] * 5
_BACKWARD = [POINTER] * 9 + _SETTINGS + [POINTER] * 7

kernels = NativeKernels(
    Path(__file__).with_name("cpu_attention.cpp"),
    lanes=(INTEGER, []),
    forward=(INTEGER, _FORWARD),
    collect=(None, [INTEGER] + [POINTER] * 2),
    backward=(None, _BACKWARD),
)


class CpuAttention(FusedKernel):
    """Saves what is shorter: the weights, λ and two more numbers by row, or the support of each row."""

    name, seeds, parts_dtype = "attention_cpu", 2**62, torch.float64

    def forward(
        self, inputs: KernelInputs, need_weights: bool, save: bool, fixed_sizes: bool = False
    ) -> tuple[Tensor, Optional[Tensor], tuple[Optional[Tensor], ...]]:
        """Saves solutions, columns, counts, support and its keys; see the base class."""
        query, key, value = inputs[:3]
        dtype, many = working_dtype(query.dtype), key.size(2) > MAX_DENSE_KEYS
        *tiles, lanes = _tiles(query)
        output = empty_output(query)
        weights = query.new_empty(*query.shape[:3], key.size(2), dtype=dtype) if need_weights else None
        solutions = columns = counts = support = places = None
        if save and (many or fixed_sizes):
            solutions = query.new_empty(*tiles, 3, lanes, dtype=dtype).flatten(1)
        elif save:
            columns = query.new_empty(*tiles, key.size(2), lanes, dtype=dtype)
        if save and many and not fixed_sizes:
            counts = query.new_empty(*tiles, lanes, dtype=torch.int32)
        sizes, strides = _sizes(query, key), _strides(query, key, value, in_heads(output))
        found = _integers((0, 0))
        given = (query, key, value, output, *_settings(inputs), int(many))
        results = (weights, columns, solutions, counts, found)
        if kernels.run("forward", dtype, sizes, strides, *given, *results) == _OUT_OF_RANGE:
            check_range(inputs.alpha)
        if counts is not None:
            support = query.new_empty(found[0], dtype=dtype)
            places = query.new_empty(found[0], dtype=torch.int32)
            kernels.run("collect", dtype, found[1], support, places)
        weights = None if weights is None else weights.to(query.dtype)
        return output, weights, (solutions, columns, counts, support, places)

    def backward(
        self,
        inputs: KernelInputs,
        saved: tuple[Optional[Tensor], ...],
        grad: Tensor,
        grad_weights: Optional[Tensor],
        need_alpha: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
        """See the base class."""
        query, key, value = inputs[:3]
        dtype = working_dtype(query.dtype)
        solutions, columns, counts, support, places = (*saved, None, None, None, None)[:5]
        # the kernel does not write padding
        empty = torch.empty_like if inputs.key_padding_mask is None else torch.zeros_like
        grads = (torch.empty_like(query), empty(key), empty(value))
        per_head = query.new_empty(query.shape[:2], dtype=torch.float64) if need_alpha else None
        grad_weights = None if grad_weights is None else grad_weights.to(dtype).contiguous()
        sizes, strides = _sizes(query, key), _strides(query, key, value, grad, *grads)
        given = (query, key, value, grad, *grads, *_settings(inputs), grad_weights)
        kept = (columns, solutions, counts, support, places)
        kernels.run("backward", dtype, sizes, strides, *given, *kept, per_head)
        return *grads, per_head

    def saved_like(self, inputs: KernelInputs) -> Tensor:
        """Three numbers by row; see the base class."""
        batch, heads, tiles, lanes = _tiles(inputs.query)
        size = heads * tiles * 3 * lanes
        return inputs.query.new_empty(batch, size, dtype=working_dtype(inputs.query.dtype))


def _tiles(query: Tensor) -> tuple[int, int, int, int]:
    """Sentences, heads, tiles of queries, and their size, which depends on the instruction set."""
    batch, heads, queries, _ = query.shape
    lanes = int(kernels.run("lanes", working_dtype(query.dtype)))
    return batch, heads, (queries + lanes - 1) // lanes, lanes


def _settings(inputs: KernelInputs) -> tuple:
    """α, masks and dropout."""
    alpha = inputs.alpha.reshape(-1).to(torch.float64).contiguous()
    masks = (None if each is None else each.contiguous() for each in inputs[4:6])
    seed = 0 if inputs.seed is None else int(inputs.seed)
    return alpha, alpha.numel(), *masks, int(inputs.causal), inputs.dropout, seed


def _integers(*groups: Iterable[int]) -> ctypes.Array:
    values = [value for group in groups for value in group]
    return (INTEGER * len(values))(*values)


def _sizes(query: Tensor, key: Tensor) -> ctypes.Array:
    return _integers(query.shape[:3], key.shape[2:], (STORAGE[query.dtype],))


def _strides(*tensors: Tensor) -> ctypes.Array:
    return _integers(*(tensor.stride()[:3] for tensor in tensors))
