"""Triton kernels of the forward pass of fused attention for short rows.

Each tensor is passed with its strides over batch, heads and rows, in units of UNIT elements. This tells the
compiler that rows begin at multiples of UNIT, while the strides remain run-time values.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..entmax.triton_solver import solve
from .fused_tiles import (
    dropped,
    epsilon,
    load_rows,
    place_of,
    product,
    scores_of,
    store_numbers,
    store_rows,
    visible_to,
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
    eps = epsilon(alpha, head, alphas)
    q += (batch * q_batch + head * q_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    o += (batch * o_batch + head * o_head) * UNIT
    if padding is not None:
        padding += batch * padding_stride
    if DROPOUT:
        seed = tl.load(seed)

    visible = visible_to(first, keys, M, CAUSAL)
    # Under a causal mask, the first queries see few keys, which a narrower tile holds.
    HALVINGS: tl.constexpr = (2 if N >= 4 * M else (1 if N >= 2 * M else 0)) if CAUSAL else 0
    for halvings in tl.static_range(HALVINGS + 1):
        too_wide = 0 if halvings == HALVINGS else N >> (halvings + 1)
        if True if HALVINGS == 0 else (visible > too_wide) & (visible <= N >> halvings):
            _attend(
                q, q_row * UNIT, k, k_row * UNIT, v, v_row * UNIT, o, o_row * UNIT, lam + both * queries,
                first, both * queries + first, queries, keys, head_dim, padding, scale, eps, seed, threshold,
                inverse_share, M, N >> halvings, D, WHOLE, CAUSAL, DROPOUT, PRECISION, COARSE,
            )  # fmt: skip


@triton.jit
def _attend(
    q, q_stride, k, k_stride, v, v_stride, o, o_stride, lam,
    first, row, queries, keys, head_dim, padding, scale, eps, seed, threshold, inverse_share,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """M queries from ``first`` on, which see only the first N keys; ``row`` is that of :func:`.kept`."""
    q_tile = load_rows(q, first, queries, q_stride, head_dim, M, D, WHOLE)
    k_tile = load_rows(k, 0, keys, k_stride, head_dim, N, D, WHOLE)
    z = scores_of(q_tile, k_tile, first, 0, keys, padding, scale, M, N, CAUSAL, PRECISION)
    p, row_lam = solve(z, keys, eps, M, True, COARSE)
    store_numbers(lam, row_lam, first, queries, M)
    p = dropped(p, seed, threshold, inverse_share, row, 0, M, N, DROPOUT)
    v_tile = load_rows(v, 0, keys, v_stride, head_dim, N, D, WHOLE)
    output = product(p.to(v_tile.dtype), v_tile, PRECISION)
    store_rows(o, output.to(o.dtype.element_ty), first, queries, o_stride, head_dim, M, D, WHOLE)
