"""Attention by the native kernel for the CPU, ``cpu.cpp``: scores, weights and output in one pass."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.build import INTEGER, POINTER, address, load_kernel
from ..entmax.checks import check_range
from ..entmax.masks import as_numbers
from .heads import dense_rows, empty_output, gradient_of_alpha, is_per_head

# For fewer queries than these, most of a vector would be empty, and the parts that torch does are faster.
LEAST_QUERIES = 4
_LANES = {torch.float32: 16, torch.float64: 8}
_OUT_OF_RANGE = -1
_FORWARD = [POINTER] * 7 + [INTEGER] + [POINTER] * 2 + [INTEGER] + [POINTER] * 2
_BACKWARD = [POINTER] * 10 + [INTEGER] + [POINTER] * 4


def is_fit(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    dropout: float,
) -> bool:
    """Whether the kernel is there, and made for such arguments; softmax is left to torch."""
    shape = (query.size(-2), key.size(-2))
    return (
        query.device.type == "cpu"
        and query.dtype in _LANES
        and query.dtype == key.dtype == value.dtype
        and query.size(-1) == value.size(-1)
        and dropout == 0.0
        and query.size(-2) >= LEAST_QUERIES
        and key.numel() > 0
        and (is_per_head(alpha, query.size(1)) if isinstance(alpha, Tensor) else alpha != 1)
        and (key_padding_mask is None or key_padding_mask.shape == (query.size(0), key.size(-2)))
        and (attn_mask is None or (attn_mask.shape == shape and not attn_mask.requires_grad))
        and has_native("cpu")
        and kernel() is not None
    )


@functools.cache
def kernel() -> Optional[dict]:
    """The compiled functions by (name, dtype); None where they cannot be built."""
    source = Path(__file__).with_suffix(".cpp")
    return load_kernel(source, forward=(INTEGER, _FORWARD), backward=(None, _BACKWARD))


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    need_weights: bool = False,
) -> tuple[Tensor, Optional[Tensor]]:
    """Attention as of :func:`~user_dir.attention.op.attention`, for what :func:`is_fit` lets through."""
    if not isinstance(alpha, Tensor):
        alpha = torch.tensor(alpha, dtype=torch.float64)
    if attn_mask is not None:
        attn_mask = as_numbers(attn_mask, query.dtype)
    if key_padding_mask is not None:
        key_padding_mask = key_padding_mask.to(torch.bool).contiguous()
    output, weights = _Attention.apply(
        query, key, value, alpha, key_padding_mask, attn_mask, causal, need_weights
    )
    return output, weights if need_weights else None


class _Attention(torch.autograd.Function):
    """Autograd around the kernel; saves its inputs and the columns of weights that it wrote."""

    @staticmethod
    def forward(
        ctx,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        alpha: Tensor,
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
        causal: bool,
        need_weights: bool,
    ) -> tuple[Tensor, Optional[Tensor]]:
        """Output (B, H, T, D), as a view of (T, B, H, D), and weights (B, H, T, S) if needed."""
        query, key, value = (dense_rows(tensor.detach()) for tensor in (query, key, value))
        batch, heads, queries, depth = query.shape
        keys = key.size(2)
        lanes = _LANES[query.dtype]
        vector = _vector(alpha)
        output = empty_output(query)
        weights = query.new_empty(batch, heads, queries, keys) if need_weights else None
        columns = query.new_empty(batch, heads, -(-queries // lanes), keys, lanes)
        found = kernel()["forward", query.dtype](
            _integers(query.shape[:3], (keys, depth)),
            _strides(query, key, value, output),
            query.data_ptr(),
            key.data_ptr(),
            value.data_ptr(),
            output.data_ptr(),
            vector.data_ptr(),
            vector.numel(),
            address(key_padding_mask),
            address(attn_mask),
            int(causal),
            address(weights),
            columns.data_ptr(),
        )
        if found == _OUT_OF_RANGE:
            check_range(alpha.detach())
        ctx.save_for_backward(query, key, value, alpha, key_padding_mask, columns)
        ctx.set_materialize_grads(False)
        return output, weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Optional[Tensor], grad_weights: Optional[Tensor]):
        """Gradients of queries, keys, values and α."""
        query, key, value, alpha, key_padding_mask, columns = ctx.saved_tensors
        grad = dense_rows(torch.zeros_like(query) if grad is None else grad)
        vector = _vector(alpha)
        grad_query = torch.empty_like(query)
        # what is padding is not written
        empty = torch.empty_like if key_padding_mask is None else torch.zeros_like
        grad_key, grad_value = empty(key), empty(value)
        per_head = torch.empty(query.shape[:2], dtype=torch.float64) if ctx.needs_input_grad[3] else None
        grad_weights = None if grad_weights is None else grad_weights.contiguous()
        kernel()["backward", query.dtype](
            _integers(query.shape[:3], key.shape[2:]),
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
            address(grad_weights),
            columns.data_ptr(),
            address(per_head),
        )
        grad_alpha = None if per_head is None else gradient_of_alpha(per_head, alpha)
        return grad_query, grad_key, grad_value, grad_alpha, None, None, None, None


def _vector(alpha: Tensor) -> Tensor:
    return alpha.detach().reshape(-1).to(torch.float64)


def _integers(*groups) -> ctypes.Array:
    values = [value for group in groups for value in group]
    return (INTEGER * len(values))(*values)


def _strides(*tensors: Tensor) -> ctypes.Array:
    return _integers(*(tensor.stride()[:3] for tensor in tensors))
