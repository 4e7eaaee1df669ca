"""The public attention: picks what computes it."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from . import cpu
from .dense import dense_attention


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
    if torch.jit.is_scripting():  # TorchScript knows no autograd functions
        return dense_attention(
            query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights
        )
    else:
        fused = cpu.is_fit(query, key, value, alpha, key_padding_mask, attn_mask, dropout)
        if fused:
            return cpu.fused_attention(
                query, key, value, alpha, key_padding_mask, attn_mask, causal, need_weights
            )
        return dense_attention(
            query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights
        )
