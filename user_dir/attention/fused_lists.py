"""Which tiles of long rows have weights: found from maxima, kept as flags, and visited by lists.

A *slot* is a tile of keys, or several neighbours where a row has more than SLOTS tiles. For ε > 0, a key has
no weight if 1 + ε (z − λ) ≤ 0; if that holds for the maximum of a slot and a lower bound of λ, no key of the
slot has. A loop over a list of tiles has no condition, which would keep the compiler from loading ahead.
"""

from __future__ import annotations

import triton
import triton.language as tl

SLOTS = tl.constexpr(64)
# ε (z − λ) of a key that has no weight for certain: not −1, because a λ during the search, and the same score
# in another kernel, may differ by rounding.
NO_WEIGHT = tl.constexpr(-1.01)


@triton.jit
def note_maxima(maxima, top, z, start, slot_keys, M: tl.constexpr):
    """Continue a slot's maxima ``top`` by scores z (M, N) from key ``start`` on; stores them (slots, M)."""
    top = tl.where(start % slot_keys == 0, float("-inf"), top)
    top = tl.maximum(top, tl.max(z, 1))
    tl.store(maxima + (start // slot_keys) * M + tl.arange(0, M), top)
    return top


@triton.jit
def list_by_maxima(maxima, tiles, flags, least, eps, slot_tiles, visible_tiles, M: tl.constexpr):
    """List in ``tiles`` those in which a row may have weights if λ ≥ ``least`` (M), and flag their slots.

    For ε = 0 these are all but the masked ones, and for an invalid ``least`` all. Returns their number.
    """
    slots = tl.arange(0, SLOTS)
    there = slots * slot_tiles < visible_tiles
    at = slots[None, :] * M + tl.arange(0, M)[:, None]
    top = tl.load(maxima + at, mask=there[None, :], other=float("-inf"))
    without = (eps * (top - least[:, None]) <= NO_WEIGHT) | (top == float("-inf"))
    valid = least == least  # a tile whose only scores are NaN and −∞ has the maximum −∞
    with_some = (without == 0) | (valid == 0)[:, None]
    some = tl.where(there, tl.max(with_some.to(tl.int32), 0), 0)
    tl.store(flags + slots, some.to(tl.int8), mask=there)
    return _list(tiles, some, slots * slot_tiles, slot_tiles, visible_tiles, 0)


@triton.jit
def list_by_flags(tiles, flags, stride, begin, slots, slot_tiles, visible_tiles):
    """List in ``tiles`` those of the slots from ``begin`` to ``slots`` that are flagged; their number."""
    listed = begin * 0
    for first in range(begin, slots, SLOTS):
        slot = first + tl.arange(0, SLOTS)
        some = tl.load(flags + slot * stride, mask=slot < slots, other=0).to(tl.int32)
        listed = _list(tiles, some, slot * slot_tiles, slot_tiles, visible_tiles, listed)
    return listed


@triton.jit
def _list(tiles, some, first, each, count, listed):
    """Append, for slots with ``some``, ``each`` tiles from ``first`` on, below ``count``; the new length."""
    place = listed + (tl.cumsum(some, 0) - 1) * each
    for offset in range(0, each):
        tile = first + offset
        tl.store(tiles + place + offset, tile.to(tl.float32), mask=(some != 0) & (tile < count))
    return listed + tl.sum(tl.where(some != 0, tl.minimum(each, count - first), 0), 0)
