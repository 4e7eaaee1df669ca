"""Checks of the arguments of α-entmax, its loss and attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def check_dim(dim: int, scores: Tensor) -> None:
    """Raise ValueError unless the scores have this dimension; a single score has one, as in torch."""
    if not -max(scores.dim(), 1) <= dim < max(scores.dim(), 1):
        raise ValueError(f"dim {dim} is out of range for scores of shape {tuple(scores.shape)}")


def check_shape(alpha: Tensor, scores: Tensor, dim: int) -> None:
    """Raise ValueError unless α broadcasts against the scores with size 1 at ``dim``."""
    padded = (1,) * (scores.dim() - alpha.dim()) + tuple(alpha.shape)
    fits = len(padded) == scores.dim() and all(a in (1, s) for a, s in zip(padded, scores.shape))
    if not fits or (padded and padded[dim] != 1):
        raise ValueError(
            f"alpha of shape {tuple(alpha.shape)} must broadcast against scores of shape "
            f"{tuple(scores.shape)} with size 1 at dim {dim}"
        )


def check_number(alpha: float) -> None:
    """Raise ValueError if α is below 1, infinite or NaN."""
    if not 1 <= alpha < math.inf:
        raise ValueError(f"alpha must be at least 1 and finite, not {alpha:g}")


def check_range(alpha: Tensor) -> None:
    """Raise ValueError if some α is below 1, infinite or NaN."""
    valid = (alpha >= 1) & (alpha < math.inf)
    if not bool(valid.all()):
        check_number(alpha[~valid].flatten()[0].item())


def check_targets(target: Tensor, size: int, ignore_index: int) -> None:
    """Raise ValueError, on a CPU, if a target is neither from 0 to size − 1 nor ``ignore_index``.

    On a GPU, the kernel of the loss gives such rows NaN.
    """
    if target.device.type != "cpu":  # looking at them would synchronise with the device
        return
    target = target.long()  # in a narrow integer type, ignore_index or size could wrap around
    wrong = ((target < 0) | (target >= size)) & (target != ignore_index)
    if bool(wrong.any()):
        value = target[wrong].flatten()[0].item()
        raise ValueError(f"a target must be from 0 to {size - 1} or {ignore_index}, not {value}")


def check_mask(attn_mask: Tensor) -> None:
    """Raise ValueError unless a mask is boolean or floating.

    An integer mask is usually meant to be boolean, but would be added to the scores.
    """
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise ValueError(f"the attn_mask must be boolean or floating, not {attn_mask.dtype}")


def check_masks(key_padding_mask: Tensor | None, attn_mask: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless masks fit scores (B, H, T, S), and their dtypes are unambiguous.

    A padding mask of numbers is ambiguous: added to the scores, or 1 for a token as in Hugging Face's models.
    """
    batch, _, queries, keys = shape
    if key_padding_mask is not None:
        mask_shape = tuple(key_padding_mask.shape)
        if key_padding_mask.dtype != torch.bool:
            raise ValueError(f"the key_padding_mask must be boolean, not {key_padding_mask.dtype}")
        if mask_shape != (batch, keys):
            raise ValueError(f"the key_padding_mask must have the shape {(batch, keys)}, not {mask_shape}")
    if attn_mask is not None:
        check_mask(attn_mask)
        mask_shape = tuple(attn_mask.shape)
        fits = all(size in (1, wanted) for size, wanted in zip(mask_shape[::-1], shape[::-1]))
        if not fits or len(mask_shape) > len(shape):
            raise ValueError(f"the attn_mask must have the shape {(queries, keys)}, not {mask_shape}")


def as_numbers(attn_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a mask to a contiguous additive mask, with −inf where a boolean mask is true."""
    check_mask(attn_mask)
    if attn_mask.dtype == torch.bool:
        return torch.zeros_like(attn_mask, dtype=dtype).masked_fill_(attn_mask, float("-inf")).contiguous()
    return attn_mask.to(dtype).contiguous()


def check_causal(causal: bool, queries: int, keys: int) -> None:
    """Raise ValueError if a causal mask is asked for, but T ≠ S.

    The diagonal could begin at the first key or end at the last one, and libraries differ in this.
    """
    if causal and queries != keys:
        raise ValueError(f"a causal mask needs as many queries as keys, not {queries} and {keys}")
