"""The kernel of attention for the CPU, ``cpu_attention.cpp``: how it is compiled and called."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor

from ..entmax.alpha_checks import check_range
from ..entmax.build import INTEGER, POINTER, address, load_kernel
from ..entmax.reference import working_dtype
from .head_layouts import dense_rows, empty_output, in_heads

# With more keys the kernel looks for queries with few keys in their support.
MAX_DENSE_KEYS = 160
# Storage format of tensors; half precision is computed in float32.
STORAGE = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
_OUT_OF_RANGE = -1
_DROPOUT = [ctypes.c_double, INTEGER]
_FORWARD = [POINTER] * 7 + [INTEGER] + [POINTER] * 2 + [INTEGER] + _DROPOUT + [INTEGER] + [POINTER] * 5
_COLLECT = [INTEGER] + [POINTER] * 2
_BACKWARD = [POINTER] * 10 + [INTEGER] + [POINTER] * 2 + [INTEGER] + _DROPOUT + [POINTER] * 7


@functools.cache
def kernel() -> Optional[dict]:
    """The compiled functions by (name, dtype); None if they cannot be compiled."""
    source = Path(__file__).with_name("cpu_attention.cpp")
    return load_kernel(
        source,
        lanes=(INTEGER, []),
        forward=(INTEGER, _FORWARD),
        collect=(None, _COLLECT),
        backward=(None, _BACKWARD),
    )


Saved = tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    causal: bool,
    dropout: float,
    seed: Optional[Tensor],
    need_weights: bool,
    save: bool,
    fixed_sizes: bool = False,
) -> tuple[tuple[Tensor, Optional[Tensor]], Saved]:
    """Output (T, B, H, D), weights, and for the backward: columns, solutions, counts, support and its keys.

    If ``fixed_sizes``, solutions are all that is saved: shapes must not depend on values.
    """
    query, key, value = (dense_rows(tensor) for tensor in (query, key, value))
    batch, heads, queries, _ = query.shape
    dtype = working_dtype(query.dtype)
    keys = key.size(2)
    lanes = lanes_of(query)
    tiles = -(-queries // lanes)
    vector = _vector(alpha)
    output = empty_output(query)
    by_head = in_heads(output)
    weights = torch.empty(batch, heads, queries, keys, dtype=dtype) if need_weights else None
    long = keys > MAX_DENSE_KEYS
    columns = solutions = counts = None
    if save and (long or fixed_sizes):
        solutions = torch.empty(batch, heads, tiles, 3, lanes, dtype=dtype)
    elif save:
        columns = torch.empty(batch, heads, tiles, keys, lanes, dtype=dtype)
    if save and long and not fixed_sizes:
        counts = torch.empty(batch, heads, tiles, lanes, dtype=torch.int32)
    support, places = None, None
    found = _integers((0, 0))
    status = _compiled()["forward", dtype](
        _sizes(query, key),
        _strides(query, key, value, by_head),
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        output.data_ptr(),
        vector.data_ptr(),
        vector.numel(),
        address(key_padding_mask),
        address(attn_mask),
        int(causal),
        dropout,
        0 if seed is None else int(seed),
        int(long),
        address(weights),
        address(columns),
        address(solutions),
        address(counts),
        found,
    )
    if status == _OUT_OF_RANGE:
        check_range(alpha)
    if counts is not None:
        support, places = torch.empty(found[0], dtype=dtype), torch.empty(found[0], dtype=torch.int32)
        _compiled()["collect", dtype](found[1], support.data_ptr(), places.data_ptr())
    weights = None if weights is None else weights.to(query.dtype)
    return (output, weights), (columns, solutions, counts, support, places)


def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    causal: bool,
    dropout: float,
    seed: Optional[Tensor],
    saved: Sequence[Optional[Tensor]],
    grad: Tensor,
    grad_weights: Optional[Tensor],
    need_alpha: bool,
) -> tuple[tuple[Tensor, Tensor, Tensor], Optional[Tensor]]:
    """Gradients of queries, keys and values, and that of α per sentence and head, (B, H), if needed."""
    grad = dense_rows(grad)
    vector = _vector(alpha)
    grad_query = torch.empty_like(query)
    # the kernel does not write padding
    empty = torch.empty_like if key_padding_mask is None else torch.zeros_like
    grad_key, grad_value = empty(key), empty(value)
    per_head = torch.empty(query.shape[:2], dtype=torch.float64) if need_alpha else None
    dtype = working_dtype(query.dtype)
    grad_weights = None if grad_weights is None else grad_weights.to(dtype).contiguous()
    _compiled()["backward", dtype](
        _sizes(query, key),
        _strides(query, key, value, grad, grad_query, grad_key, grad_value),
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        grad.data_ptr(),
        grad_query.data_ptr(),
        grad_key.data_ptr(),
        grad_value.data_ptr(),
        vector.data_ptr(),
        vector.numel(),
        address(key_padding_mask),
        address(attn_mask),
        int(causal),
        dropout,
        0 if seed is None else int(seed),
        address(grad_weights),
        *(address(tensor) for tensor in saved),
        address(per_head),
    )
    return (grad_query, grad_key, grad_value), per_head


def lanes_of(query: Tensor) -> int:
    """How many queries are a tile, which depends on the instruction set."""
    return _compiled()["lanes", working_dtype(query.dtype)]()


def _vector(alpha: Tensor) -> Tensor:
    return alpha.reshape(-1).to(torch.float64).contiguous()


def _integers(*groups: Iterable[int]) -> ctypes.Array:
    values = [value for group in groups for value in group]
    return (INTEGER * len(values))(*values)


def _sizes(query: Tensor, key: Tensor) -> ctypes.Array:
    return _integers(query.shape[:3], key.shape[2:], (STORAGE[query.dtype],))


def _strides(*tensors: Tensor) -> ctypes.Array:
    return _integers(*(tensor.stride()[:3] for tensor in tensors))


def _compiled() -> dict:
    found = kernel()
    assert found is not None, "this implementation was picked without a kernel"
    return found
