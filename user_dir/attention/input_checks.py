"""Validation of shapes, masks and dropout; a kernel would read out of bounds if they did not fit."""

from __future__ import annotations

from torch import Tensor

from ..entmax.alpha_checks import check_number
from ..entmax.masks import check_causal, check_mask
from .inputs import AttentionInputs


def check_inputs(inputs: AttentionInputs) -> None:
    """Raise ValueError, naming what is wrong, unless arguments fit :func:`.dispatch.attention`.

    A mask may have size 1 where it broadcasts. The attn_mask must be boolean or floating.
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
    if key_padding_mask is not None and not _broadcasts(key_padding_mask, (batch, keys), least=2):
        raise ValueError(
            f"the key_padding_mask must have the shape {(batch, keys)}, not {tuple(key_padding_mask.shape)}"
        )
    if attn_mask is not None:
        check_mask(attn_mask)
    if attn_mask is not None and not _broadcasts(attn_mask, (batch, heads, queries, keys)):
        raise ValueError(f"the attn_mask must have the shape {(queries, keys)}, not {tuple(attn_mask.shape)}")
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability from 0 to 1, not {dropout}")
    if not isinstance(alpha, Tensor):
        check_number(alpha)


def _broadcasts(mask: Tensor, shape: tuple[int, ...], least: int = 0) -> bool:
    """Whether a mask broadcasts to a shape."""
    fits = all(size in (1, wanted) for size, wanted in zip(reversed(mask.shape), reversed(shape)))
    return fits and least <= mask.dim() <= len(shape)


def _shapes(*tensors: Tensor) -> str:
    return "shapes " + ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
