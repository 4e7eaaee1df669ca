"""Attention that materialises its weights: takes all arguments, on any device."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entmax import entmax
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
    scores, value = scores_and_values(inputs)
    return weighted_values(entmax(scores, inputs.alpha), value, inputs)


def scores_and_values(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """The result of :func:`attention_scores`, and the values, both in the dtype to compute in."""
    query, key, value = inputs[:3]
    if not query.is_cuda:  # GPUs sum products of half precision in float32
        dtype = working_dtype(query.dtype)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    return attention_scores(query, key, inputs.key_padding_mask, inputs.attn_mask, inputs.causal), value


def weighted_values(weights: Tensor, value: Tensor, inputs: AttentionInputs) -> tuple[Tensor, Tensor | None]:
    """The output (B, H, T, D), with dropout of the weights (B, H, T, S); and the weights, if needed."""
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
    if attn_mask is not None:
        hides = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(attn_mask, -math.inf) if hides else scores + attn_mask.to(scores.dtype)
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask[:, None, None, :], -math.inf)
    return scores
