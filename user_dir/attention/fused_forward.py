"""Triton kernels of the forward pass of fused attention for short rows and decoding steps.

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
    row_mask,
    row_offsets,
    scores_of,
    store_numbers,
    store_rows,
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

    q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
    k_tile = load_rows(k, 0, keys, k_row * UNIT, head_dim, N, D, WHOLE)
    z = scores_of(q_tile, k_tile, first, 0, keys, padding, scale, M, N, CAUSAL, PRECISION)
    p, row_lam = solve(z, keys, eps, M, True, COARSE)
    store_numbers(lam + both * queries, row_lam, first, queries, M)
    p = dropped(p, seed, threshold, inverse_share, both * queries + first, 0, M, N, DROPOUT)
    v_tile = load_rows(v, 0, keys, v_row * UNIT, head_dim, N, D, WHOLE)
    output = product(p.to(v_tile.dtype), v_tile, PRECISION)
    store_rows(o, output.to(o.dtype.element_ty), first, queries, o_row * UNIT, head_dim, M, D, WHOLE)


@kernel
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
    batch, head, both, _ = place_of(heads, 1, False)
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
    weighted = (
        row_mask(0, keys, head_dim, N, D, WHOLE) & (p != 0)[:, None]
    )  # values without weight are not read
    v_tile = tl.load(v + row_offsets(0, v_row * UNIT, N, D), mask=weighted, other=0.0).to(tl.float32)
    output = tl.sum(v_tile * p[:, None], 0)
    tl.store(o + columns, output.to(o.dtype.element_ty), mask=there)
