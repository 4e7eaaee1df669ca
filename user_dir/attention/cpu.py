"""The backend for a CPU, ``cpu_attention.cpp``: scores, weights and output in one pass."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.checks import check_range
from ..entmax.native import INTEGER, POINTER, NativeKernels, addresses
from ..entmax.operators import constant_in_graphs
from ..entmax.reference import working_dtype
from .fused import FusedKernel, Gradients, Saved, empty_output, in_heads
from .inputs import AttentionInputs, KernelInputs

# With fewer queries most of a vector would be empty, so dense attention is faster.
MIN_QUERIES = 4
# With more keys the kernel looks for queries with few keys in their support.
MAX_DENSE_KEYS = 160
# Storage format of tensors; half precision is computed in float32.
STORAGE = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
_OUT_OF_RANGE = -1
_FORWARD = [POINTER] * 12 + [ctypes.c_double, INTEGER, POINTER]
_BACKWARD = [POINTER] * 18 + [ctypes.c_double]

kernels = NativeKernels(
    Path(__file__).with_name("cpu_attention.cpp"),
    lanes=(INTEGER, []),
    forward=(INTEGER, _FORWARD),
    collect=(None, [INTEGER] + [POINTER] * 2),
    backward=(None, _BACKWARD),
)


@constant_in_graphs
def unavailable() -> str | None:
    """Why the kernel is not available; None if it is."""
    if has_native("cpu") and kernels.available():
        return None
    return "the fused kernel for the CPU needs a C++ compiler, and ENTMAX_BACKEND not to be reference"


class CpuAttention(FusedKernel):
    """Scores, weights and output in one pass; slower than dense attention for softmax and for few queries.

    Saves the weights of short rows; of long rows, λ and two more numbers, and the support if it is small.
    """

    device = "cpu"
    unavailable = staticmethod(unavailable)
    operator, seeds, dtypes, parts_dtype = "attention_cpu", 2**62, STORAGE, torch.float64

    def unsupported(self, inputs: AttentionInputs) -> str | None:
        """See the base class."""
        attn_mask = inputs.attn_mask
        if attn_mask is not None and attn_mask.shape != (inputs.query.size(-2), inputs.key.size(-2)):
            return f"the attn_mask broadcasts from {tuple(attn_mask.shape)}"
        if attn_mask is not None and attn_mask.requires_grad:
            return "the attn_mask needs a gradient"
        return super().unsupported(inputs)

    def is_preferred(self, inputs: AttentionInputs) -> bool:
        """See the base class."""
        if not isinstance(inputs.alpha, Tensor) and inputs.alpha == 1:
            return False
        # an exported graph is for any number of queries
        few = not torch.compiler.is_exporting() and inputs.query.size(-2) < MIN_QUERIES
        return not few and super().is_preferred(inputs)

    def forward(
        self, inputs: KernelInputs, need_weights: bool, save: bool, fixed_sizes: bool = False
    ) -> tuple[Tensor, Tensor | None, Saved]:
        """Saves solutions, columns, counts, support and its keys; see the base class."""
        query, key, value = inputs[:3]
        dtype, keys = working_dtype(query.dtype), key.size(2)
        many = keys > MAX_DENSE_KEYS
        *tiles, lanes = _tiles(query)
        output = empty_output(query)
        weights = query.new_empty(*query.shape[:3], keys, dtype=dtype) if need_weights else None
        solutions = columns = counts = support = places = None
        if save and (many or fixed_sizes):
            solutions = query.new_empty(*tiles, 3, lanes, dtype=dtype).flatten(1)
        elif save:
            columns = query.new_empty(*tiles, keys, lanes, dtype=dtype)
        if save and many and not fixed_sizes:
            counts = query.new_empty(*tiles, lanes, dtype=torch.int32)
        settings, collected = _settings(inputs), (INTEGER * 2)()
        numbers = _numbers(inputs, query, key, value, in_heads(output))
        pointers = addresses(query, key, value, output, *settings, weights, columns, solutions, counts)
        if kernels["forward", dtype](numbers, *pointers, inputs.dropout, many, collected) == _OUT_OF_RANGE:
            check_range(inputs.alpha)
        if counts is not None:
            support = query.new_empty(collected[0], dtype=dtype)
            places = query.new_empty(collected[0], dtype=torch.int32)
            kernels["collect", dtype](collected[1], *addresses(support, places))
        weights = None if weights is None else weights.to(query.dtype)
        return output, weights, (solutions, columns, counts, support, places)

    def backward(
        self,
        inputs: KernelInputs,
        saved: Saved,
        grad: Tensor,
        grad_weights: Tensor | None,
        need_alpha: bool,
    ) -> Gradients:
        """See the base class."""
        query, key, value = inputs[:3]
        dtype = working_dtype(query.dtype)
        kept = saved if len(saved) == 5 else (*saved, None, None, None, None)
        # the kernel does not write the gradients of padded keys
        empty = torch.empty_like if inputs.key_padding_mask is None else torch.zeros_like
        grads = (torch.empty_like(query), empty(key), empty(value))
        per_head = query.new_empty(query.shape[:2], dtype=torch.float64) if need_alpha else None
        grad_weights = None if grad_weights is None else grad_weights.to(dtype).contiguous()
        settings, numbers = _settings(inputs), _numbers(inputs, query, key, value, grad, *grads)
        pointers = addresses(query, key, value, grad, *grads, *settings, grad_weights, *kept, per_head)
        kernels["backward", dtype](numbers, *pointers, inputs.dropout)
        return *grads, per_head

    def saved_like(self, inputs: KernelInputs) -> Tensor:
        """Three numbers by row; see the base class."""
        batch, heads, tiles, lanes = _tiles(inputs.query)
        size = heads * tiles * 3 * lanes
        return inputs.query.new_empty(batch, size, dtype=working_dtype(inputs.query.dtype))


def _tiles(query: Tensor) -> tuple[int, int, int, int]:
    """Numbers of sentences, heads and tiles, and of queries per tile, set by the instruction set."""
    batch, heads, queries, _ = query.shape
    lanes = kernels["lanes", working_dtype(query.dtype)]()
    return batch, heads, (queries + lanes - 1) // lanes, lanes


def _settings(inputs: KernelInputs) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """α and masks as the kernel reads them."""
    padding, added = (None if mask is None else mask.contiguous() for mask in inputs[4:6])
    return inputs.alpha.to(torch.float64).contiguous(), padding, added


def _numbers(inputs: KernelInputs, *tensors: Tensor) -> ctypes.Array:
    """Sizes and settings, and the strides of each tensor except its last one, which is 1."""
    query, key, _, alpha, _, _, causal, _, seed = inputs
    settings = (STORAGE[query.dtype], alpha.numel(), causal, 0 if seed is None else int(seed))
    strides = [stride for tensor in tensors for stride in tensor.stride()[:3]]
    numbers = (*query.shape[:3], *key.shape[2:], *settings, *strides)
    return (INTEGER * len(numbers))(*numbers)


KERNEL = CpuAttention()
