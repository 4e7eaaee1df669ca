"""Recognises the mask of the future, which fairseq's decoder gives as numbers to be added."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

# buffer → its version when it was looked at, and what was found
_looked_at = WeakIdKeyDictionary()


def is_future_mask(mask: Tensor) -> bool:
    """Whether a mask (T, T) hides from each query the keys after it, and nothing else: −∞ or true there.

    A decoder passes views of one buffer, call after call, so each buffer is looked at once; on a GPU that is
    the only time the host waits.
    """
    if mask.dim() != 2 or mask.size(0) != mask.size(1) or mask.requires_grad:
        return False
    buffer = _buffer(mask)
    if buffer.is_inference():  # has no version by which to know it again
        return _is_future(buffer)
    found = _looked_at.get(buffer)
    if found is None or found[0] != buffer._version:
        found = (buffer._version, _is_future(buffer))
        _looked_at[buffer] = found
    return found[1]


def _buffer(mask: Tensor) -> Tensor:
    """The tensor that a mask is the upper left corner of, or else the mask itself."""
    base = mask._base
    if base is None or base.dim() != 2 or base.dtype != mask.dtype:
        return mask
    corner = mask.stride() == base.stride() and mask.storage_offset() == base.storage_offset()
    return base if corner and mask.size(0) <= min(base.shape) else mask


def _is_future(mask: Tensor) -> bool:
    hidden = True if mask.dtype == torch.bool else float("-inf")
    return torch.equal(mask, torch.full_like(mask, hidden).triu_(1))
