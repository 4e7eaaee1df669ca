"""Attention masks: which keys a query must not attend to."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor


def check_mask(attn_mask: Tensor) -> None:
    """Raise ValueError unless a mask is boolean or floating; TorchScript can compile it.

    An integer mask is usually meant to be boolean, but would be added to the scores.
    """
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        kind = "an integer or complex dtype" if torch.jit.is_scripting() else str(attn_mask.dtype)
        raise ValueError(
            f"the attn_mask must be boolean (true where a query must not attend to a key) or floating (added "
            f"to the scores), not {kind}; convert it with .bool() or .float()"
        )


def check_masks(
    key_padding_mask: Optional[Tensor], attn_mask: Optional[Tensor], shape: tuple[int, ...]
) -> None:
    """Raise ValueError unless masks broadcast to scores (B, H, T, S), and their dtypes have a meaning.

    Numbers in a padding mask may be added to the scores, or be 1 for a token as in Hugging Face's models.
    """
    batch, _, queries, keys = shape
    if key_padding_mask is not None:
        if key_padding_mask.dtype != torch.bool:
            raise ValueError(
                f"the key_padding_mask is {key_padding_mask.dtype}, but must be boolean, true where a key is "
                "padding; numbers that are added to scores are an attn_mask"
            )
        if not _broadcasts(key_padding_mask, (batch, keys), least=2):
            raise ValueError(
                f"the key_padding_mask must have the shape {(batch, keys)}, not "
                f"{tuple(key_padding_mask.shape)}"
            )
    if attn_mask is not None:
        check_mask(attn_mask)
        if not _broadcasts(attn_mask, shape):
            raise ValueError(
                f"the attn_mask must have the shape {(queries, keys)}, not {tuple(attn_mask.shape)}"
            )


def _broadcasts(mask: Tensor, shape: tuple[int, ...], least: int = 0) -> bool:
    """Whether a mask broadcasts to a shape."""
    fits = all(size in (1, wanted) for size, wanted in zip(reversed(mask.shape), reversed(shape)))
    return fits and least <= mask.dim() <= len(shape)


def as_numbers(attn_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a mask to a contiguous additive mask, with −inf where a boolean mask is true.

    Raises:
        ValueError: see :func:`check_mask`.
    """
    check_mask(attn_mask)
    if attn_mask.dtype == torch.bool:
        return torch.zeros_like(attn_mask, dtype=dtype).masked_fill_(attn_mask, float("-inf")).contiguous()
    return attn_mask.to(dtype).contiguous()


def check_causal(causal: bool, queries: int, keys: int) -> None:
    """Raise ValueError if a causal mask is asked for, but T ≠ S; TorchScript can compile it.

    It could begin at the first key or end at the last one, and software differs in which.
    """
    if causal and queries != keys:
        raise ValueError(
            f"a causal mask needs as many queries as keys, not {queries} and {keys}; pass the attn_mask that "
            "you mean"
        )


def hide(
    scores: Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
) -> Tensor:
    """Set attention scores to −inf where a query must not attend to a key; TorchScript can compile it.

    Args:
        scores: (B, H, T, S).
        key_padding_mask: (B, S), true where a key is padding.
        attn_mask: (T, S), added to the scores; or boolean, true where a query must not attend to a key.
        causal: query t attends to keys 0 … t only (T = S).

    Raises:
        ValueError: see :func:`check_mask` and :func:`check_causal`.
    """
    if attn_mask is not None:
        check_mask(attn_mask)
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(attn_mask, float("-inf"))
        else:
            scores = scores + attn_mask.to(scores.dtype)
    if causal:
        check_causal(causal, scores.size(-2), scores.size(-1))
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask[:, None, None, :], float("-inf"))
    return scores
