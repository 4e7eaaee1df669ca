"""Triton kernels of decoding steps: one query per head, without gradients, by sums of products.

A matrix product needs 16 queries. Arguments are as in :mod:`.fused_forward`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..entmax.triton_solver import solve
from .fused_forward import kernel
from .fused_tiles import (
    epsilon,
    load_numbers,
    load_rows,
    place_of,
    row_mask,
    row_offsets,
    store_numbers,
)


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
    """At most ROW keys, N at a time; ``weights`` (batch × heads, keys) are written unless None.

    ``scratch`` (batch × heads, keys), float32, if ROW > N: the scores, then the weights, each of which other
    threads of the program read.
    """
    batch, head, both, _ = place_of(heads, 1, False)
    eps = epsilon(alpha, head, alphas)
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
    """Scaled scores (N) of a query (D) and the keys from ``first`` on, −∞ where it must not attend to one."""
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
