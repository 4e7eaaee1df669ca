"""Attention that materialises its weights."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entmax import attention_weights
from ..entmax.masks import hide
from ..entmax.reference import entmax_forward


def attention(
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
    """Scaled dot-product attention with α-entmax: entmax(QKᵀ/√D) V.

    Args:
        query: (B, H, T, D).
        key: (B, H, S, D).
        value: (B, H, S, D).
        alpha: a number, or a tensor (H, 1, 1) or (1, 1, 1).
        key_padding_mask: (B, S), true where a key is padding, on either side.
        attn_mask: (T, S), added to the scores; or boolean, true where a key is hidden from a query.
        causal: query t sees keys 0 … t only (T = S).
        dropout: probability with which a weight is dropped, after the normalizer.
        need_weights: also return the weights, as they are before dropout.

    Returns:
        The output, (B, H, T, D), and the weights, (B, H, T, S), or None. A query all of whose keys are
        masked gets zeros.

    Source: Vaswani et al. 2017, equation 1; Correia et al. 2019, equation 9.
    """
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))  # (B, H, T, S)
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
    """QKᵀ/√D, −inf where masked: (B, H, T, S); arguments as for :func:`attention`."""
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
    return hide(scores, key_padding_mask, attn_mask, causal)
