"""Triton kernels of the forward pass of fused attention.

Each tensor is passed with its strides over batch, heads and rows, in units of UNIT elements. This tells the
compiler that rows begin at multiples of UNIT, while the strides remain run-time values.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...entmax.triton_solver import (
    LOG2_E,
    MAX_LAST,
    coarse_powers,
    epsilon_of,
    first_width,
    greatest_lam,
    halley_step,
    has_curvature,
    next_step,
    or_one,
    power,
    solve,
    solve_below_zero,
    unfinished,
    worth,
)
from .tiles import (
    dropped,
    list_by_maxima,
    load_numbers,
    load_rows,
    note_maxima,
    place_of,
    product,
    row_mask,
    row_offsets,
    scores_of,
    store_numbers,
    store_rows,
    weights_at,
)

# Kernels are compiled per constexprs, dtypes and alignment of the large tensors.
RUN_TIME = ["alpha", "padding", "heads", "alphas", "queries", "keys", "head_dim", "scale", "seed"]
RUN_TIME += ["threshold", "inverse_share", "padding_stride", "query_tiles", "key_tiles", "slot_tiles"]
STRIDES = [f"{name}_{over}" for name in ("q", "k", "v", "o") for over in ("batch", "head", "row")]
kernel = triton.jit(do_not_specialize=[*RUN_TIME, *STRIDES])


@kernel
def forward_short(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    o, o_batch, o_head, o_row,
    lam, query_tiles, alpha, padding, padding_stride,
    heads, alphas, queries, keys, head_dim, scale, seed, threshold, inverse_share,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """M queries of a head with at most N keys, in one tile: the output, and λ of each query."""
    batch, head, both, tile = place_of(heads, query_tiles, False)
    first = tile * M
    eps = epsilon_of(alpha, head % alphas, tl.float32)
    q += (batch * q_batch + head * q_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    o += (batch * o_batch + head * o_head) * UNIT
    if padding is not None:
        padding += batch * padding_stride
    if DROPOUT:
        seed = tl.load(seed)

    visible = tl.minimum(keys, first + M) if CAUSAL else keys
    # Under a causal mask, the first queries see few keys, which a narrower tile holds.
    HALVINGS: tl.constexpr = (2 if N >= 4 * M else (1 if N >= 2 * M else 0)) if CAUSAL else 0
    for halvings in tl.static_range(HALVINGS + 1):
        too_wide = 0 if halvings == HALVINGS else N >> (halvings + 1)
        if True if HALVINGS == 0 else (visible > too_wide) & (visible <= N >> halvings):
            WIDTH: tl.constexpr = N >> halvings
            q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
            k_tile = load_rows(k, 0, keys, k_row * UNIT, head_dim, WIDTH, D, WHOLE)
            z = scores_of(q_tile, k_tile, first, 0, keys, padding, scale, M, WIDTH, CAUSAL, PRECISION)
            p, row_lam = solve(z, keys, eps, M, True, COARSE)
            store_numbers(lam + both * queries, row_lam, first, queries, M)
            row = both * queries + first
            p = dropped(p, seed, threshold, inverse_share, row, 0, M, WIDTH, DROPOUT)
            v_tile = load_rows(v, 0, keys, v_row * UNIT, head_dim, WIDTH, D, WHOLE)
            output = product(p.to(v_tile.dtype), v_tile, PRECISION)
            store_rows(o, output.to(o.dtype.element_ty), first, queries, o_row * UNIT, head_dim, M, D, WHOLE)


# ------------------------------------------------------------------------- rows longer than a tile
#
# Scores are computed again in each pass over the keys. The first pass visits all tiles and keeps, for each
# row, the greatest score of each column over all tiles: N scores of different keys, among them the maximum.
# The λ of these N scores, found on chip, is a lower bound of the row's λ, since fewer scores have less mass
# at any λ; the two are equal if all keys with weight are in different columns. The search starts there and
# mostly ends after one more pass. Later passes visit only tiles that can have weights (:mod:`.tiles`).


@kernel
def forward_long(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    o, o_batch, o_head, o_row,
    lam, query_tiles, alpha, padding, padding_stride,
    heads, alphas, queries, keys, head_dim, scale, seed, threshold, inverse_share,
    flags, scratch, key_tiles, slot_tiles,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """M queries of a head: the output; λ of each query; which slots of ``slot_tiles`` tiles have weights.

    ``flags`` (batch × heads, query tiles, slots). ``scratch``: for each program maxima (slots, M) and a list
    (key tiles).
    """
    batch, head, both, tile = place_of(heads, query_tiles, CAUSAL)
    first = tile * M
    eps = epsilon_of(alpha, head % alphas, tl.float32)
    q += (batch * q_batch + head * q_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    o += (batch * o_batch + head * o_head) * UNIT
    slots = (key_tiles + slot_tiles - 1) // slot_tiles
    flags += (both * query_tiles + tile) * slots
    scratch += (both * query_tiles + tile) * (slots * M + key_tiles)
    tiles = scratch + slots * M
    if padding is not None:
        padding += batch * padding_stride
    if DROPOUT:
        seed = tl.load(seed)
    q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
    visible = tl.minimum(keys, first + M) if CAUSAL else keys
    visible_tiles = (visible + N - 1) // N
    there = first + tl.arange(0, M) < queries
    if eps == 0:
        top = tl.full([M], float("-inf"), tl.float32)
        slot_top = top
        mass = tl.zeros([M], tl.float32)
        for start in range(0, visible, N):
            k_tile = load_rows(k, start, keys, k_row * UNIT, head_dim, N, D, WHOLE)
            z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
            slot_top = note_maxima(scratch, slot_top, z, start, slot_tiles * N, M)
            new_top = tl.maximum(top, tl.max(z, 1))
            base = tl.where(new_top == float("-inf"), 0.0, new_top)
            mass = mass * tl.exp2((top - base) * LOG2_E)
            mass += tl.sum(tl.exp2((z - base[:, None]) * LOG2_E), 1)
            top = new_top
        row_lam = tl.where(top == float("-inf"), 0.0, top) + tl.log(or_one(mass))
    else:
        row_lam = _search(
            q_tile, k, k_row * UNIT, scratch, tiles, flags, slot_tiles, there, first, visible, keys,
            head_dim, padding, scale, eps, M, N, D, WHOLE, CAUSAL, PRECISION, COARSE,
        )  # fmt: skip
    tl.debug_barrier()  # until all threads have read the list and written the maxima
    least = tl.where(there, row_lam, float("inf"))
    count = list_by_maxima(scratch, tiles, flags, least, eps, slot_tiles, visible_tiles, M)
    tl.debug_barrier()

    total = tl.zeros([M], tl.float32)
    output = tl.zeros([M, D], tl.float32)
    for i in range(0, count):
        start = tl.load(tiles + i).to(tl.int32) * N
        if start >= 0 if DROPOUT else True:  # see :func:`dropped`
            k_tile = load_rows(k, start, keys, k_row * UNIT, head_dim, N, D, WHOLE)
            v_tile = load_rows(v, start, keys, v_row * UNIT, head_dim, N, D, WHOLE)
            z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
            p, _ = weights_at(z, row_lam, eps, COARSE)
            total += tl.sum(p, 1)
            p = dropped(p, seed, threshold, inverse_share, both * queries + first, start, M, N, DROPOUT)
            output += product(p.to(v_tile.dtype), v_tile, PRECISION)
    output = output / or_one(total)[:, None]
    store_numbers(lam + both * queries, row_lam, first, queries, M)
    store_rows(o, output.to(o.dtype.element_ty), first, queries, o_row * UNIT, head_dim, M, D, WHOLE)


@triton.jit
def _search(
    q_tile, k, k_stride, maxima, tiles, flags, slot_tiles, there, first, visible, keys,
    head_dim, padding, scale, eps,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """λ of each row for ε > 0; stores the maxima of slots."""
    best = tl.full([M, N], float("-inf"), tl.float32)
    slot_top = tl.full([M], float("-inf"), tl.float32)
    for start in range(0, visible, N):
        k_tile = load_rows(k, start, keys, k_stride, head_dim, N, D, WHOLE)
        z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
        best = tl.maximum(best, z, propagate_nan=tl.PropagateNan.ALL)
        slot_top = note_maxima(maxima, slot_top, z, start, slot_tiles * N, M)
    top = tl.max(best, 1)
    top = tl.where(top == float("-inf"), 0.0, top)
    # A score of NaN makes the maximum of its row NaN, and so its bounds: no tile is left out.
    top = tl.where(tl.max((best != best).to(tl.int32), 1) > 0, float("nan"), top)
    low = tl.zeros([M], tl.float32)
    if eps <= 1:  # for larger ε, bisection starts at 0
        _, low = solve_below_zero(best - top[:, None], tl.minimum(visible, N), eps, M, True, COARSE)

    visible_tiles = (visible + N - 1) // N
    curved = has_curvature(eps) & COARSE
    last = greatest_lam(keys, eps)
    width = first_width(keys, eps)
    row_lam = low + width
    steps = 0
    moving = keys > 0
    while moving:
        tl.debug_barrier()  # until all threads have read the previous list and written the maxima
        least = tl.where(there, top + low, float("inf"))
        count = list_by_maxima(maxima, tiles, flags, least, eps, slot_tiles, visible_tiles, M)
        tl.debug_barrier()
        mass = tl.zeros([M], tl.float32)
        slope = tl.zeros([M], tl.float32)
        curvature = tl.zeros([M], tl.float32)
        for i in range(0, count):
            start = tl.load(tiles + i).to(tl.int32) * N
            k_tile = load_rows(k, start, keys, k_stride, head_dim, N, D, WHOLE)
            z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
            if curved:
                u, curve = coarse_powers(z, top + row_lam, eps)
                w = curve * u
                mass += tl.sum(w * u, 1)
                slope += tl.sum(w, 1)
                curvature += tl.sum(curve, 1)
            else:
                p, p_slope = power(z, top + row_lam, eps, COARSE)
                mass += tl.sum(p, 1)
                slope += tl.sum(p_slope, 1)
        low = tl.where(mass >= 1.0, row_lam, low)  # Halley's method may go beyond the solution
        if curved:
            step = halley_step(mass, slope, curvature, row_lam, last, eps)
            far = tl.abs(step) > MAX_LAST
        else:
            step, far, width = next_step(mass, slope, row_lam, width, eps)
            # No weights are kept for a last correction: the square of the step must be negligible.
            far = far & worth(step, eps, COARSE)
        row_lam += step
        steps += 1
        moving = unfinished(far & there, steps)
    if eps > 1:
        row_lam = low
    return top + row_lam


# ------------------------------------------------------ decoding steps: one query per head, without gradients


@kernel
def forward_step(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    o, o_batch, o_head, o_row,
    weights, scratch, alpha, padding, padding_stride,
    heads, alphas, keys, head_dim, scale,
    N: tl.constexpr, ROW: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr,
    COARSE: tl.constexpr,
):  # fmt: skip
    """One query and at most ROW keys, N at a time; writes ``weights`` (batch × heads, keys) unless None.

    ``scratch`` (batch × heads, keys), float32, if ROW > N: the program's threads exchange scores, and then
    weights, through it.
    """
    batch, head, both, _ = place_of(heads, 1, False)
    eps = epsilon_of(alpha, head % alphas, tl.float32)
    columns = tl.arange(0, D)
    there = columns < head_dim
    q += (batch * q_batch + head * q_head) * UNIT
    o += (batch * o_batch + head * o_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    if padding is not None:
        padding += batch * padding_stride
    query = tl.load(q + columns, mask=there, other=0.0).to(tl.float32)
    if ROW == N:
        z = _scores(query, k, 0, keys, k_row * UNIT, head_dim, padding, scale, N, D, WHOLE)
    else:
        scratch += both * keys
        for start in range(0, keys, N):
            z = _scores(query, k, start, keys, k_row * UNIT, head_dim, padding, scale, N, D, WHOLE)
            store_numbers(scratch, z, start, keys, N)
        tl.debug_barrier()
        z = load_numbers(scratch, 0, keys, float("-inf"), ROW)
    p, _ = solve(z[None, :], keys, eps, 1, True, COARSE)
    p = tl.reshape(p, (ROW,))
    if weights is not None:
        store_numbers(weights + both * keys, p.to(weights.dtype.element_ty), 0, keys, ROW)
    if ROW == N:
        output = tl.sum(_weighted(p, v, 0, keys, v_row * UNIT, head_dim, N, D, WHOLE), 0)
    else:
        tl.debug_barrier()
        store_numbers(scratch, p, 0, keys, ROW)
        tl.debug_barrier()
        weighted = tl.zeros([N, D], tl.float32)
        for start in range(0, keys, N):
            some = load_numbers(scratch, start, keys, 0.0, N)
            weighted += _weighted(some, v, start, keys, v_row * UNIT, head_dim, N, D, WHOLE)
        output = tl.sum(weighted, 0)
    tl.store(o + columns, output.to(o.dtype.element_ty), mask=there)


@triton.jit
def _scores(
    query, k, first, keys, stride, head_dim, padding, scale,
    N: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Scaled scores (N) of a query (D) and the keys from ``first`` on, −∞ for missing and masked keys."""
    k_tile = load_rows(k, first, keys, stride, head_dim, N, D, WHOLE).to(tl.float32)
    z = tl.sum(k_tile * query[None, :], 1) * scale
    at = first + tl.arange(0, N)
    visible = at < keys
    if padding is not None:
        visible = visible & (tl.load(padding + at, mask=visible, other=1) == 0)
    return tl.where(visible, z, float("-inf"))


@triton.jit
def _weighted(p, v, first, keys, stride, head_dim, N: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr):
    """The values (N, D) from ``first`` on times their weights p (N); those without weight are not read."""
    mask = row_mask(first, keys, head_dim, N, D, WHOLE) & (p != 0)[:, None]
    values = tl.load(v + row_offsets(first, stride, N, D), mask=mask, other=0.0)
    return values.to(tl.float32) * p[:, None]
