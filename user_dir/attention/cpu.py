"""Attention by the native kernel for the CPU, ``cpu.cpp``: scores, weights and output in one pass."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from ..entmax import has_native
from ..entmax.build import INTEGER, POINTER, address, load_kernel
from ..entmax.checks import check_range
from ..entmax.masks import as_numbers
from ..entmax.once import once_differentiable
from ..entmax.reference import working_dtype
from .heads import ONCE, dense_rows, empty_output, gradient_of_alpha, in_heads, is_per_head

# With fewer queries most of a vector would be empty, so dense attention is faster.
LEAST_QUERIES = 4
# With more keys the kernel looks for queries with few keys in their support.
MOST_DENSE_KEYS = 160
# Storage format of tensors; half precision is computed in float32.
_STORAGE = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
_OUT_OF_RANGE = -1
_DROPOUT = [ctypes.c_double, INTEGER]
_FORWARD = [POINTER] * 7 + [INTEGER] + [POINTER] * 2 + [INTEGER] + _DROPOUT + [INTEGER] + [POINTER] * 5
_COLLECT = [INTEGER] + [POINTER] * 2
_BACKWARD = [POINTER] * 10 + [INTEGER] + [POINTER] * 2 + [INTEGER] + _DROPOUT + [POINTER] * 7


def unavailable() -> Optional[str]:
    """Why the kernel is not available; None if it is."""
    if has_native("cpu") and kernel() is not None:
        return None
    return "the fused kernel for the CPU needs a C++ compiler, and ENTMAX_BACKEND not to be reference"


def supports(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Optional[str]:
    """None if the kernel supports the arguments of :func:`.op.attention`; else the reason why not."""
    if query.dtype not in _STORAGE or not query.dtype == key.dtype == value.dtype:
        given = " and ".join(sorted({str(tensor.dtype) for tensor in (query, key, value)}))
        return f"on the CPU it supports queries, keys and values of the same floating dtype, not {given}"
    if query.size(-1) != value.size(-1):
        return f"keys have the head dimension {query.size(-1)}, but values {value.size(-1)}"
    if not query.numel() or not key.numel():
        return "there are no queries or no keys"
    if isinstance(alpha, Tensor) and not is_per_head(alpha, query.size(1)):
        return f"alpha has the shape {tuple(alpha.shape)}, not one entry per head"
    if key_padding_mask is not None and key_padding_mask.shape != (query.size(0), key.size(-2)):
        return f"the key padding mask broadcasts from {tuple(key_padding_mask.shape)}"
    if attn_mask is not None and attn_mask.shape != (query.size(-2), key.size(-2)):
        return f"the attn_mask broadcasts from {tuple(attn_mask.shape)}"
    if attn_mask is not None and attn_mask.requires_grad:
        return "the attn_mask needs a gradient"
    return unavailable()


@functools.cache
def kernel() -> Optional[dict]:
    """The compiled functions by (name, dtype); None if they cannot be compiled."""
    source = Path(__file__).with_suffix(".cpp")
    return load_kernel(
        source,
        lanes=(INTEGER, []),
        forward=(INTEGER, _FORWARD),
        collect=(None, _COLLECT),
        backward=(None, _BACKWARD),
    )


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Optional[Tensor]]:
    """Attention with the arguments and results of :func:`.op.attention`, if :func:`supports` allows them."""
    if not isinstance(alpha, Tensor):
        alpha = torch.tensor(alpha, dtype=torch.float64)
    if attn_mask is not None:
        attn_mask = as_numbers(attn_mask, working_dtype(query.dtype))
    if key_padding_mask is not None:
        key_padding_mask = key_padding_mask.to(torch.bool).contiguous()
    # the kernel has its own generator, so that the backward pass can draw the same numbers again
    seed = int(torch.randint(2**62, ())) if dropout > 0.0 else 0
    given = (query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, seed, need_weights)
    tensors = (query, key, value, alpha)
    learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if learning or any(unpack_dual(tensor).tangent is not None for tensor in tensors):
        output, weights = _Attention.apply(*given)  # which refuses to differentiate in forward mode
    else:
        (output, weights), _ = _forward(*given, save=False)
    return in_heads(output), weights


class _Attention(torch.autograd.Function):
    """Autograd function around the kernel; saves its inputs and the kernel's form of the weights."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        alpha: Tensor,
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
        causal: bool,
        dropout: float,
        seed: int,
        need_weights: bool,
    ) -> tuple[Tensor, Optional[Tensor]]:
        """Output (T, B, H, D), and weights (B, H, T, S) if needed."""
        query, key, value = (dense_rows(tensor.detach()) for tensor in (query, key, value))
        masks = (key_padding_mask, attn_mask, causal)
        results, saved = _forward(query, key, value, alpha, *masks, dropout, seed, need_weights, save=True)
        ctx.save_for_backward(query, key, value, alpha, key_padding_mask, attn_mask, *saved)
        ctx.causal, ctx.dropout, ctx.seed = causal, dropout, seed
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    @once_differentiable(ONCE)
    def backward(
        ctx: Any, grad: Optional[Tensor], grad_weights: Optional[Tensor]
    ) -> tuple[Optional[Tensor], ...]:
        """Gradients of queries, keys, values and α."""
        query, key, value, alpha, key_padding_mask, attn_mask, *saved = ctx.saved_tensors
        grad = dense_rows(torch.zeros_like(query) if grad is None else in_heads(grad))
        vector = _vector(alpha)
        grad_query = torch.empty_like(query)
        # the kernel does not write padding
        empty = torch.empty_like if key_padding_mask is None else torch.zeros_like
        grad_key, grad_value = empty(key), empty(value)
        per_head = torch.empty(query.shape[:2], dtype=torch.float64) if ctx.needs_input_grad[3] else None
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
            int(ctx.causal),
            ctx.dropout,
            ctx.seed,
            address(grad_weights),
            *(address(tensor) for tensor in saved),
            address(per_head),
        )
        grad_alpha = None if per_head is None else gradient_of_alpha(per_head, alpha)
        return grad_query, grad_key, grad_value, grad_alpha, *[None] * 6


_Saved = tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    causal: bool,
    dropout: float,
    seed: int,
    need_weights: bool,
    save: bool,
) -> tuple[tuple[Tensor, Optional[Tensor]], _Saved]:
    """Output, weights and the backward's inputs: columns, solutions, counts, support and its keys."""
    query, key, value = (dense_rows(tensor.detach()) for tensor in (query, key, value))
    batch, heads, queries, _ = query.shape
    dtype = working_dtype(query.dtype)
    keys = key.size(2)
    lanes = _compiled()["lanes", dtype]()  # queries of a tile, by instruction set
    tiles = -(-queries // lanes)
    vector = _vector(alpha)
    output = empty_output(query)
    by_head = in_heads(output)
    weights = torch.empty(batch, heads, queries, keys, dtype=dtype) if need_weights else None
    long = keys > MOST_DENSE_KEYS
    columns = torch.empty(batch, heads, tiles, keys, lanes, dtype=dtype) if save and not long else None
    solutions = torch.empty(batch, heads, tiles, 3, lanes, dtype=dtype) if save and long else None
    counts = torch.empty(batch, heads, tiles, lanes, dtype=torch.int32) if save and long else None
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
        seed,
        int(long),
        address(weights),
        address(columns),
        address(solutions),
        address(counts),
        found,
    )
    if status == _OUT_OF_RANGE:
        check_range(alpha.detach())
    if counts is not None:
        support, places = torch.empty(found[0], dtype=dtype), torch.empty(found[0], dtype=torch.int32)
        _compiled()["collect", dtype](found[1], support.data_ptr(), places.data_ptr())
    weights = None if weights is None else weights.to(query.dtype)
    return (output, weights), (columns, solutions, counts, support, places)


def _vector(alpha: Tensor) -> Tensor:
    return alpha.detach().reshape(-1).to(torch.float64).contiguous()


def _integers(*groups: Iterable[int]) -> ctypes.Array:
    values = [value for group in groups for value in group]
    return (INTEGER * len(values))(*values)


def _sizes(query: Tensor, key: Tensor) -> ctypes.Array:
    return _integers(query.shape[:3], key.shape[2:], (_STORAGE[query.dtype],))


def _strides(*tensors: Tensor) -> ctypes.Array:
    return _integers(*(tensor.stride()[:3] for tensor in tensors))


def _compiled() -> dict:
    found = kernel()
    assert found is not None, "this implementation was picked without a kernel"
    return found
