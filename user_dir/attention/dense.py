"""Attention that materialises its weights."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entmax import entmax
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
    scores = attention_scores(query, key, key_padding_mask, attn_mask, causal)
    if torch.jit.is_scripting():  # noqa: SIM108  TorchScript knows no autograd functions
        weights = entmax_forward(scores, alpha)
    else:
        weights = entmax(scores, alpha)
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
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))  # (B, H, T, S)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(attn_mask, float("-inf"))
        else:
            scores = scores + attn_mask
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask[:, None, None, :].to(torch.bool), float("-inf"))
    return scores
