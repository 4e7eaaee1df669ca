"""Attention that materialises its weights: takes all arguments, on any device; TorchScript can compile it."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entmax import attention_weights
from ..entmax.masks import hide
from ..entmax.reference import entmax_forward, working_dtype


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Union[float, Tensor],
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Attention, with the arguments and results of :func:`.op.attention`."""
    dtype = query.dtype
    query, key, value = widened(query, key, value)
    scores = attention_scores(query, key)
    if torch.jit.is_scripting():  # TorchScript has no autograd functions
        assert isinstance(alpha, Tensor)
        weights = entmax_forward(hide(scores, key_padding_mask, attn_mask, causal), alpha)
    else:
        weights = attention_weights(scores, alpha, key_padding_mask, attn_mask, causal)
    return weighted_values(weights, value, dtype, dropout, need_weights)


def widened(query: Tensor, key: Tensor, value: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in the dtype in which to compute."""
    if query.is_cuda:  # GPUs multiply half precision with sums in float32
        return query, key, value
    working = working_dtype(query.dtype)
    return query.to(working), key.to(working), value.to(working)


def weighted_values(
    weights: Tensor, value: Tensor, dtype: torch.dtype, dropout: float, need_weights: bool
) -> Tuple[Tensor, Optional[Tensor]]:
    """The output (B, H, T, D) of weights (B, H, T, S), after dropout; and the weights, if needed."""
    output = torch.matmul(F.dropout(weights, dropout) if dropout > 0.0 else weights, value)
    return output.to(dtype), weights.to(dtype) if need_weights else None


def attention_scores(
    query: Tensor,
    key: Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
) -> Tensor:
    """QKᵀ/√D, −∞ where masked: (B, H, T, S); arguments as for :func:`.op.attention`."""
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
    return hide(scores, key_padding_mask, attn_mask, causal)
