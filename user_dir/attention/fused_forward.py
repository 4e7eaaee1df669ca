"""Triton kernels of the forward pass of fused attention; ``fused`` launches them.

Each tensor is passed with its strides over batch, heads and rows, in units of UNIT elements. This tells the
compiler that rows begin at multiples of UNIT, while the strides remain run-time values.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..entmax.triton_powers import (
    LOG2_E,
    coarse_powers,
    has_curvature,
    or_one,
    power,
)
from ..entmax.triton_solver import (
    MAX_LAST,
    first_width,
    greatest_lam,
    halley_step,
    next_step,
    solve,
    unfinished,
    worth,
)
from .fused_tiles import (
    dropped,
    epsilon,
    head_of,
    load_rows,
    product,
    scores_of,
    store_numbers,
    store_rows,
    visible_to,
    weights_at,
)

# Kernels are compiled per constexprs, dtypes and alignment of the large tensors.
RUN_TIME = ["alpha", "padding", "heads", "alphas", "queries", "keys", "head_dim", "scale", "seed"]
RUN_TIME += ["threshold", "inverse_share", "padding_stride", "key_tiles"]
STRIDES = [f"{name}_{over}" for name in ("q", "k", "v", "o") for over in ("batch", "head", "row")]
_kernel = triton.jit(do_not_specialize=[*RUN_TIME, *STRIDES])


@_kernel
def forward_short(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    o, o_batch, o_head, o_row,
    lam, alpha, padding, padding_stride,
    heads, alphas, queries, keys, head_dim, scale, seed, threshold, inverse_share,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """M queries of a head with at most N keys, in one tile: the output, and λ of each query."""
    batch, head, both = head_of(heads)
    first = tl.program_id(1) * M
    eps = epsilon(alpha, head, alphas)
    q += (batch * q_batch + head * q_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    o += (batch * o_batch + head * o_head) * UNIT
    if padding is not None:
        padding += batch * padding_stride

    q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
    k_tile = load_rows(k, 0, keys, k_row * UNIT, head_dim, N, D, WHOLE)
    z = scores_of(q_tile, k_tile, first, 0, keys, padding, scale, M, N, CAUSAL, PRECISION)
    p, row_lam = solve(z, keys, eps, M, True, COARSE)
    store_numbers(lam + both * queries, row_lam, first, queries, M)
    p = dropped(p, seed, threshold, inverse_share, both * queries + first, 0, M, N, DROPOUT)
    v_tile = load_rows(v, 0, keys, v_row * UNIT, head_dim, N, D, WHOLE)
    output = product(p.to(v_tile.dtype), v_tile, PRECISION)
    store_rows(o, output.to(o.dtype.element_ty), first, queries, o_row * UNIT, head_dim, M, D, WHOLE)


@_kernel
def forward_long(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    o, o_batch, o_head, o_row,
    lam, alpha, padding, padding_stride,
    heads, alphas, queries, keys, head_dim, scale, seed, threshold, inverse_share,
    alive, key_tiles,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """The same for any number of keys, tile by tile, with scores recomputed at each step.

    λ only increases, so a tile without weights at one step is skipped at all later ones. ``alive``
    (batch × heads, query tiles, key tiles) records which tiles still have weights.
    """
    batch, head, both = head_of(heads)
    tile = tl.program_id(1)
    first = tile * M
    eps = epsilon(alpha, head, alphas)
    q += (batch * q_batch + head * q_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    o += (batch * o_batch + head * o_head) * UNIT
    alive += (both * tl.num_programs(1) + tile) * key_tiles
    if padding is not None:
        padding += batch * padding_stride
    q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
    visible = visible_to(first, keys, M, CAUSAL)
    top, total = _maxima(
        q_tile, k, k_row * UNIT, alive, first, visible, keys, head_dim, padding, scale, eps,
        M, N, D, WHOLE, CAUSAL, PRECISION,
    )  # fmt: skip
    if eps == 0:
        row_lam = tl.log(or_one(total))
    else:
        row_lam = _threshold(
            q_tile, k, k_row * UNIT, alive, top, first, visible, keys, head_dim, padding, scale, eps,
            M, N, D, WHOLE, CAUSAL, PRECISION, COARSE,
        )  # fmt: skip
    row_lam += top
    tl.debug_barrier()

    total = tl.zeros([M], tl.float32)
    output = tl.zeros([M, D], tl.float32)
    for start in range(0, visible, N):
        if tl.load(alive + start // N) != 0:
            k_tile = load_rows(k, start, keys, k_row * UNIT, head_dim, N, D, WHOLE)
            z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
            p, _ = weights_at(z, row_lam, eps, COARSE)
            total += tl.sum(p, 1)
            p = dropped(p, seed, threshold, inverse_share, both * queries + first, start, M, N, DROPOUT)
            v_tile = load_rows(v, start, keys, v_row * UNIT, head_dim, N, D, WHOLE)
            output += product(p.to(v_tile.dtype), v_tile, PRECISION)
    output = output / or_one(total)[:, None]
    store_numbers(lam + both * queries, row_lam, first, queries, M)
    store_rows(o, output.to(o.dtype.element_ty), first, queries, o_row * UNIT, head_dim, M, D, WHOLE)


@triton.jit
def _maxima(
    q_tile, k, k_stride, alive, first, visible, keys, head_dim, padding, scale, eps,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The maximum score of each row and, for softmax, the sum of exponentials relative to it."""
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    for start in range(0, visible, N):
        k_tile = load_rows(k, start, keys, k_stride, head_dim, N, D, WHOLE)
        z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
        new_top = tl.maximum(top, tl.max(z, 1))
        if eps == 0:
            base = tl.where(new_top == float("-inf"), 0.0, new_top)
            total = total * tl.exp2((top - base) * LOG2_E)
            total += tl.sum(tl.exp2((z - base[:, None]) * LOG2_E), 1)
        top = new_top
        tl.store(alive + start // N, 1)
    return tl.where(top == float("-inf"), 0.0, top), total


@triton.jit
def _threshold(
    q_tile, k, k_stride, alive, top, first, visible, keys, head_dim, padding, scale, eps,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """λ of each row relative to its maximum ``top``, for ε > 0; updates ``alive``."""
    low = tl.zeros([M], tl.float32)
    row_lam = low
    curved = has_curvature(eps) & COARSE
    last = greatest_lam(keys, eps)
    width = first_width(keys, eps)
    row_lam += width
    steps = 0
    moving = keys > 0
    while moving:
        tl.debug_barrier()  # make the stores of the previous step visible
        mass = tl.zeros([M], tl.float32)
        slope = tl.zeros([M], tl.float32)
        curvature = tl.zeros([M], tl.float32)
        for start in range(0, visible, N):
            if tl.load(alive + start // N) != 0:
                k_tile = load_rows(k, start, keys, k_stride, head_dim, N, D, WHOLE)
                z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
                if curved:
                    u, curve = coarse_powers(z, top + row_lam, eps)
                    w = curve * u
                    mass += tl.sum(w * u, 1)
                    slope += tl.sum(w, 1)
                    curvature += tl.sum(curve, 1)
                    # Halley's method may go beyond the solution; `low` is below it. False for NaN.
                    without = z <= (top + low - 1.0 / eps)[:, None]
                else:
                    p, p_slope = power(z, top + row_lam, eps, COARSE)
                    mass += tl.sum(p, 1)
                    slope += tl.sum(p_slope, 1)
                    without = p == 0  # false for NaN
                if eps <= 1:  # for larger ε, λ can decrease again
                    some = tl.max(tl.max((without == 0).to(tl.int32), 1), 0)
                    tl.debug_barrier()
                    tl.store(alive + start // N, some)
        low = tl.where(mass >= 1.0, row_lam, low)
        step, far, width = _next_step(mass, slope, curvature, row_lam, last, width, eps, curved, COARSE)
        row_lam += step
        steps += 1
        moving = unfinished(far, steps)
    if eps > 1:
        row_lam = low
    return row_lam


@triton.jit
def _next_step(mass, slope, curvature, lam, last, width, eps, curved, COARSE: tl.constexpr):
    """The step of λ, whether another is needed, and the next width of the bracket."""
    if curved:
        step = halley_step(mass, slope, curvature, lam, last, eps)
        far = tl.abs(step) > MAX_LAST
    else:
        step, far, width = next_step(mass, slope, lam, width, eps)
        # No weights are kept for a last correction: the square of the step must be negligible.
        far = far & worth(step, eps, COARSE)
    return step, far, width


@_kernel
def forward_step(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    o, o_batch, o_head, o_row,
    weights, alpha, padding, padding_stride,
    heads, alphas, keys, head_dim, scale,
    N: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """One query per head, as in a decoding step, by sums of products: a matrix product needs 16 queries.

    ``weights`` (batch × heads, keys) are written unless None.
    """
    batch, head, both = head_of(heads)
    eps = epsilon(alpha, head, alphas)
    columns = tl.arange(0, D)
    there = columns < head_dim
    q += (batch * q_batch + head * q_head) * UNIT
    o += (batch * o_batch + head * o_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    query = tl.load(q + columns, mask=there, other=0.0).to(tl.float32)
    k_tile = load_rows(k, 0, keys, k_row * UNIT, head_dim, N, D, WHOLE).to(tl.float32)
    z = tl.sum(k_tile * query[None, :], 1) * scale
    at = tl.arange(0, N)
    visible = at < keys
    if padding is not None:
        visible = visible & (tl.load(padding + batch * padding_stride + at, mask=visible, other=1) == 0)
    z = tl.where(visible, z, float("-inf"))
    p, _ = solve(z[None, :], keys, eps, 1, True, COARSE)
    if weights is not None:
        tl.store(
            weights + both * keys + at[None, :], p.to(weights.dtype.element_ty), mask=(at < keys)[None, :]
        )
    p = tl.reshape(p, (N,))
    v_tile = load_rows(v, 0, keys, v_row * UNIT, head_dim, N, D, WHOLE).to(tl.float32)
    output = tl.sum(v_tile * p[:, None], 0)
    tl.store(o + columns, output.to(o.dtype.element_ty), mask=there)
