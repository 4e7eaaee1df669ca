"""Attention that materialises its weights."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entmax import attention_weights
from ..entmax.masks import hide
from ..entmax.reference import entmax_forward


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Attention as of :func:`~user_dir.attention.op.attention`, of any kind and on any device."""
    scores = attention_scores(query, key)
    if torch.jit.is_scripting():  # TorchScript knows no autograd functions
        weights = entmax_forward(hide(scores, key_padding_mask, attn_mask, causal), alpha)
    else:
        weights = attention_weights(scores, alpha, key_padding_mask, attn_mask, causal)
    output = torch.matmul(F.dropout(weights, dropout) if dropout > 0.0 else weights, value)
    return output, weights if need_weights else None


def attention_scores(
    query: Tensor,
    key: Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
) -> Tensor:
    """QKᵀ/√D, −inf where masked: (B, H, T, S); arguments as for attention."""
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
    return hide(scores, key_padding_mask, attn_mask, causal)
