"""Validation of shapes, masks and dropout; a kernel would read out of bounds if they did not fit."""

from __future__ import annotations

from torch import Tensor

from ..entmax.alpha_checks import check_number
from ..entmax.masks import check_causal, check_masks
from .inputs import AttentionInputs


def check_inputs(inputs: AttentionInputs) -> None:
    """Raise ValueError, naming what is wrong, unless arguments fit :func:`.dispatch.attention`.

    A mask may have size 1 where it broadcasts.
    """
    query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, _ = inputs
    if not query.dim() == key.dim() == value.dim() == 4:
        raise ValueError(f"queries, keys and values must have 4 dimensions, not {_shapes(query, key, value)}")
    batch, heads, queries, head_dim = query.shape
    keys = key.size(2)
    if key.shape != (batch, heads, keys, head_dim) or value.shape[:3] != key.shape[:3]:
        raise ValueError(
            "keys and values must be (B, H, S, D) for queries (B, H, T, D), but these have "
            + _shapes(query, key, value)
        )
    check_causal(causal, queries, keys)
    check_masks(key_padding_mask, attn_mask, (batch, heads, queries, keys))
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability from 0 to 1, not {dropout}")
    if not isinstance(alpha, Tensor):
        check_number(alpha)


def _shapes(*tensors: Tensor) -> str:
    return "shapes " + ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
