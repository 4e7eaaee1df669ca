"""Functions shared by the Triton kernels of fused attention: loading tiles, scores, weights and dropout.

A tile of scores has M rows (queries) and N columns (keys), in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...entmax.triton_solver import (
    INTERPRETED,
    LOG2_E,
    MIN_COARSE,
    alpha_terms,
    coarse_base,
    fast_log2,
    power,
)

MIN_LOG = tl.constexpr(-87.33654)  # log of the smallest normal float32
PHILOX_ROUNDS = tl.constexpr(7)  # the fewest rounds that pass TestU01's BigCrush (Salmon et al. 2011)


@triton.jit
def place_of(heads, tiles, BACKWARDS: tl.constexpr):
    """Batch index, head index, their combined index, and tile of a program; a head has ``tiles`` tiles.

    The tiles of a head run together, so that its keys and values stay in the GPU's cache. BACKWARDS begins
    with the last tile, which has the most work under a causal mask.
    """
    both = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    if BACKWARDS:
        tile = tiles - 1 - tile
    return (both // heads).to(tl.int64), (both % heads).to(tl.int64), both.to(tl.int64), tile


@triton.jit
def row_offsets(first, stride, ROWS: tl.constexpr, D: tl.constexpr):
    """Offsets of a tile (ROWS, D) that starts at row ``first``; 64 bits to the tile, 32 bits within it."""
    near = tl.arange(0, ROWS)[:, None] * stride + tl.arange(0, D)[None, :]
    return stride.to(tl.int64) * first + near


@triton.jit
def row_mask(first, count, head_dim, ROWS: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr):
    """Mask of the entries of a tile (ROWS, D) that exist; WHOLE if D is the head dimension itself."""
    mask = (first + tl.arange(0, ROWS) < count)[:, None]
    if not WHOLE:
        mask = mask & (tl.arange(0, D) < head_dim)[None, :]
    return mask


@triton.jit
def load_rows(base, first, count, stride, head_dim, ROWS: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr):
    """Load rows from ``first`` on as a tile (ROWS, D), with zeros outside the tensor."""
    mask = row_mask(first, count, head_dim, ROWS, D, WHOLE)
    return tl.load(base + row_offsets(first, stride, ROWS, D), mask=mask, other=0.0)


@triton.jit
def store_rows(
    base, tile, first, count, stride, head_dim, ROWS: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr
):
    """The inverse of :func:`load_rows`."""
    mask = row_mask(first, count, head_dim, ROWS, D, WHOLE)
    tl.store(base + row_offsets(first, stride, ROWS, D), tile, mask=mask)


@triton.jit
def load_numbers(base, first, count, other, ROWS: tl.constexpr):
    """Load one number per row, for ROWS rows from ``first`` on; ``other`` for rows that do not exist."""
    rows = first + tl.arange(0, ROWS)
    return tl.load(base + rows, mask=rows < count, other=other)


@triton.jit
def store_numbers(base, numbers, first, count, ROWS: tl.constexpr):
    """The inverse of :func:`load_numbers`."""
    rows = first + tl.arange(0, ROWS)
    tl.store(base + rows, numbers, mask=rows < count)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """Matrix product in float32."""
    if INTERPRETED:  # the interpreter multiplies bfloat16 as if its bits were integers
        c = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision=PRECISION)
    else:
        c = tl.dot(a, b, input_precision=PRECISION)
    return c


@triton.jit
def scores_of(
    q, k, first_query, first_key, keys, padding, scale,
    M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scaled scores of q (M, D) and k (N, D), −∞ where a query must not attend to a key."""
    z = product(q, tl.trans(k), PRECISION) * scale
    at = first_key + tl.arange(0, N)
    there = at < keys
    if padding is not None:
        there = there & (tl.load(padding + at, mask=there, other=1) == 0)
    there = there[None, :]
    if CAUSAL:
        there = there & (at[None, :] <= (first_query + tl.arange(0, M))[:, None])
    return tl.where(there, z, float("-inf"))


@triton.jit
def weights_at(z, lam, eps, COARSE: tl.constexpr):
    """The weights p for a known λ (M) and w = p^(1−ε) on the support; includes softmax (ε = 0)."""
    if eps == 0:
        p = tl.exp2((z - lam[:, None]) * LOG2_E)
        w = p
    else:
        p, w = power(z, lam, eps, COARSE)
    return p, w


@triton.jit
def weights_and_terms(z, lam, eps, TERMS: tl.constexpr, COARSE: tl.constexpr):
    """As :func:`weights_at`, and if TERMS each weight's factor of (g − ḡ) in the gradient of α."""
    if TERMS:
        if eps == 0:
            log_p = z - lam[:, None]
            p = tl.exp2(log_p * LOG2_E)
            w = p
        else:
            p, w, log_p = power_and_log(z, lam, eps, COARSE)
        terms = alpha_terms(p, tl.where(log_p < MIN_LOG, MIN_LOG, log_p), w, eps)
    else:
        p, w = weights_at(z, lam, eps, COARSE)
        terms = w
    return p, w, terms


@triton.jit
def power_and_log(z, lam, eps, COARSE: tl.constexpr):
    """p and w of :func:`power`, and log p."""
    if COARSE & (eps >= MIN_COARSE) & (eps < 1.0):
        u = coarse_base(z, lam, eps)
        log_u = fast_log2(u)
        w = tl.exp2(log_u * (1.0 / eps - 1.0))
        p = w * u
        log_p = log_u * (1.0 / (eps * LOG2_E))
    else:
        p, w, log_p = exact_power_and_log(z, lam, eps)
    return p, w, log_p


@triton.jit
def exact_power_and_log(z, lam, eps):
    """As :func:`power_and_log`, without the GPU's fast logarithm; see ``exact_power`` of the row kernels."""
    x = eps * (z - lam[:, None])
    x = tl.where(x < -1.0, -1.0, x)
    u = 1.0 + x
    inverse = 1.0 / u
    log_p = (tl.log(u) + tl.where(x > -0.5, (x - (u - 1.0)) * inverse, 0.0)) / eps
    p = tl.exp2(log_p * LOG2_E)
    w = tl.where(u > 0, p * inverse, p)
    return p, w, log_p


@triton.jit
def dropped(
    x, seed, threshold, inverse_share, row, first_key, M: tl.constexpr, N: tl.constexpr, DROPOUT: tl.constexpr
):
    """A tile of weights, or of their gradients, after dropout.

    What is kept depends on the seed, the row and the key, but not on the tiling. ``row`` is the index of the
    first query among the queries of all heads. Four adjacent keys share a draw.

    In a loop, call it only under a condition, even one that always holds: otherwise Triton 3.7 fails to
    compile the reshape together with loads that it pipelines.
    """
    if DROPOUT:
        rows = row + tl.arange(0, M)
        group = (first_key // 4 + tl.arange(0, N // 4))[None, :] + tl.zeros([M, N // 4], tl.int32)
        low = (rows & 0x7FFFFFFF).to(tl.int32)[:, None] + tl.zeros([M, N // 4], tl.int32)
        high = (rows >> 31).to(tl.int32)[:, None] + tl.zeros([M, N // 4], tl.int32)
        a, b, c, d = tl.philox(seed, group, low, high, high * 0, PHILOX_ROUNDS)
        bits = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (M, N))
        x = tl.where((bits >> 8).to(tl.int32) >= threshold, x * inverse_share, 0.0)
    return x


# ----------------------------------------------------------------------------- tiles without weights
#
# Which tiles of long rows have weights: found from maxima, kept as flags, and visited by lists.
#
# A *slot* is a tile of keys, or several neighbours where a row has more than SLOTS tiles. For ε > 0, a key
# has no weight if 1 + ε (z − λ) ≤ 0; if that holds for the maximum of a slot and a lower bound of λ, no key
# of the slot has weight. Loops run over lists of tiles, because a condition in a loop would keep the compiler
# from loading ahead.

SLOTS = tl.constexpr(64)
# Up to this ε (z − λ), a key certainly has no weight. It is not −1, because λ during the search, and the same
# score in another kernel, may differ by rounding.
NO_WEIGHT = tl.constexpr(-1.01)


@triton.jit
def note_maxima(maxima, top, z, start, slot_keys, M: tl.constexpr):
    """Update a slot's maxima ``top`` with scores z (M, N) from key ``start`` on; stores them (slots, M)."""
    top = tl.where(start % slot_keys == 0, float("-inf"), top)
    top = tl.maximum(top, tl.max(z, 1))
    tl.store(maxima + (start // slot_keys) * M + tl.arange(0, M), top)
    return top


@triton.jit
def list_by_maxima(maxima, tiles, flags, least, eps, slot_tiles, visible_tiles, M: tl.constexpr):
    """List in ``tiles`` the tiles in which a row may have weights if λ ≥ ``least`` (M); flag their slots.

    For ε = 0 it lists all but masked tiles, for a ``least`` of NaN all tiles. Returns their number.
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
    """List in ``tiles`` the tiles of flagged slots from ``begin`` to ``slots``; returns their number."""
    listed = begin * 0
    for first in range(begin, slots, SLOTS):
        slot = first + tl.arange(0, SLOTS)
        some = tl.load(flags + slot * stride, mask=slot < slots, other=0).to(tl.int32)
        listed = _list(tiles, some, slot * slot_tiles, slot_tiles, visible_tiles, listed)
    return listed


@triton.jit
def _list(tiles, some, first, per_slot, count, listed):
    """Append the tiles ``first`` … of slots with ``some``, if below ``count``; returns the new length."""
    place = listed + (tl.cumsum(some, 0) - 1) * per_slot
    for offset in range(0, per_slot):
        tile = first + offset
        tl.store(tiles + place + offset, tile.to(tl.float32), mask=(some != 0) & (tile < count))
    return listed + tl.sum(tl.where(some != 0, tl.minimum(per_slot, count - first), 0), 0)
