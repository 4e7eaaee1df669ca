"""Attention that materialises its weights: takes all arguments, on any device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entmax import entmax
from ..entmax.checks import hide
from ..entmax.reference import working_dtype
from .inputs import AttentionInputs, Backend


class Dense(Backend):
    """Takes all arguments, on any device."""

    name = "dense"

    def compute(self, inputs: AttentionInputs) -> tuple[Tensor, Tensor | None]:
        """See the base class."""
        return dense_attention(inputs)


def dense_attention(inputs: AttentionInputs) -> tuple[Tensor, Tensor | None]:
    """Attention, with the arguments and results of :func:`.dispatch.attention`."""
    query, key, value = widened(inputs.query, inputs.key, inputs.value)
    scores = attention_scores(query, key, inputs.key_padding_mask, inputs.attn_mask, inputs.causal)
    return weighted_values(entmax(scores, inputs.alpha), value, inputs)


def widened(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in the dtype in which to compute."""
    if query.is_cuda:  # GPUs multiply half precision with sums in float32
        return query, key, value
    working = working_dtype(query.dtype)
    return query.to(working), key.to(working), value.to(working)


def weighted_values(weights: Tensor, value: Tensor, inputs: AttentionInputs) -> tuple[Tensor, Tensor | None]:
    """Values (B, H, T, D) by weights (B, H, T, S), after dropout; and the weights, if needed."""
    dropout, dtype = inputs.dropout, inputs.query.dtype
    output = torch.matmul(F.dropout(weights, dropout) if dropout > 0.0 else weights, value)
    return output.to(dtype), weights.to(dtype) if inputs.need_weights else None


def attention_scores(
    query: Tensor,
    key: Tensor,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """QKᵀ/√D, −∞ where masked: (B, H, T, S); arguments as for :func:`.dispatch.attention`."""
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
    return hide(scores, key_padding_mask, attn_mask, causal)
