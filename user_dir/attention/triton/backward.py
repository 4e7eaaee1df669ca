"""Triton kernels of the backward pass of fused attention; :mod:`.kernels` launches them.

Weights are recomputed from queries, keys and λ. With g = ∂L/∂p, w = p^(1−ε) on the support and
ḡ = Σ g w / Σ w, the gradient of the scores is dz = w (g − ḡ), as in ``entmax.reference``. Sums have a fixed
order; there are no atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...entmax.triton_solver import epsilon_of, or_one
from .forward import RUN_TIME, STRIDES
from .tiles import (
    dropped,
    list_by_flags,
    load_numbers,
    load_rows,
    place_of,
    product,
    scores_of,
    store_numbers,
    store_rows,
    weights_and_terms,
    weights_at,
)

_OWN = [f"{name}_{over}" for name in ("do", "dq", "dk", "dv") for over in ("batch", "head", "row")]
kernel = triton.jit(do_not_specialize=[*RUN_TIME, *STRIDES, *_OWN])


@kernel
def backward_queries(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    do, do_batch, do_head, do_row,
    dq, dq_batch, dq_head, dq_row,
    lam, mean, flags, scratch, query_tiles, key_tiles, slot_tiles, partial, alpha, padding, padding_stride,
    heads, alphas, queries, keys, head_dim, scale, seed, threshold, inverse_share,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """Gradient of M queries over tiles of N keys, and their contribution to the gradient of α.

    Also stores each query's ḡ in ``mean`` (batch × heads, queries) for :func:`backward_keys`. ḡ is known
    only once all keys have been visited. Until then g is centred by c, the ḡ of the first tile with weights;
    at the end, Σ w (g − ḡ) k = Σ w (g − c) k − (ḡ − c) Σ w k. As c is near ḡ, little is lost by cancellation.

    ``flags`` (batch × heads, query tiles, slots): visit only the key tiles that the forward pass has flagged.
    ``scratch`` (…, query tiles, key tiles): room for their list. ``partial``: (…, query tiles).
    """
    batch, head, both, tile = place_of(heads, query_tiles, CAUSAL)
    first = tile * M
    eps = epsilon_of(alpha, head % alphas, tl.float32)
    q += (batch * q_batch + head * q_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    do += (batch * do_batch + head * do_head) * UNIT
    dq += (batch * dq_batch + head * dq_head) * UNIT
    lam += both * queries
    if padding is not None:
        padding += batch * padding_stride
    if DROPOUT:
        seed = tl.load(seed)
    q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
    do_tile = load_rows(do, first, queries, do_row * UNIT, head_dim, M, D, WHOLE)
    row_lam = load_numbers(lam, first, queries, float("inf"), M)
    visible = tl.minimum(keys, first + M) if CAUSAL else keys
    count = (visible + N - 1) // N
    if flags is not None:
        slots = (key_tiles + slot_tiles - 1) // slot_tiles
        flags += (both * query_tiles + tile) * slots
        scratch += (both * query_tiles + tile) * key_tiles
        seen = (count + slot_tiles - 1) // slot_tiles
        count = list_by_flags(scratch, flags, 1, 0, seen, slot_tiles, count)
        tl.debug_barrier()

    total = tl.zeros([M], tl.float32)
    centre = tl.zeros([M], tl.float32)
    off_centre = tl.zeros([M], tl.float32)
    grad_q = tl.zeros([M, D], tl.float32)
    weighted_k = tl.zeros([M, D], tl.float32)
    grad_alpha = tl.zeros([M], tl.float32)
    all_terms = tl.zeros([M], tl.float32)
    for i in range(0, count):
        start = i * N
        if flags is not None:
            start = tl.load(scratch + i).to(tl.int32) * N
        if start >= 0 if DROPOUT else True:  # see :func:`dropped`
            k_tile = load_rows(k, start, keys, k_row * UNIT, head_dim, N, D, WHOLE)
            v_tile = load_rows(v, start, keys, v_row * UNIT, head_dim, N, D, WHOLE)
            g = product(do_tile, tl.trans(v_tile), PRECISION)
            g = dropped(g, seed, threshold, inverse_share, both * queries + first, start, M, N, DROPOUT)
            z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
            _, w, terms = weights_and_terms(z, row_lam, eps, partial is not None, COARSE)
            mass = tl.sum(w, 1)
            centre = tl.where(total == 0, tl.sum(w * g, 1) / or_one(mass), centre)
            total += mass
            g -= centre[:, None]
            if partial is not None:
                grad_alpha += tl.sum(terms * g, 1)
                all_terms += tl.sum(terms, 1)
            dz = w * g
            off_centre += tl.sum(dz, 1)
            grad_q += product(dz.to(k_tile.dtype), k_tile, PRECISION)
            weighted_k += product(w.to(k_tile.dtype), k_tile, PRECISION)
    off_centre = off_centre / or_one(total)
    grad_q = ((grad_q - off_centre[:, None] * weighted_k) * scale).to(dq.dtype.element_ty)
    store_rows(dq, grad_q, first, queries, dq_row * UNIT, head_dim, M, D, WHOLE)
    store_numbers(mean + both * queries, centre + off_centre, first, queries, M)
    if partial is not None:
        grad_alpha -= off_centre * all_terms
        tl.store(partial + both * query_tiles + tile, tl.sum(grad_alpha, 0))


@kernel
def backward_keys(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    do, do_batch, do_head, do_row,
    dk, dk_batch, dk_head, dk_row,
    dv, dv_batch, dv_head, dv_row,
    lam, mean, flags, scratch, query_tiles, key_tiles, slot_tiles, alpha, padding, padding_stride,
    heads, alphas, queries, keys, head_dim, scale, seed, threshold, inverse_share,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """Gradients of N keys and values over tiles of M queries, after :func:`backward_queries`.

    ``flags``: as there. ``scratch`` (…, key tiles, query tiles): room for the list of query tiles.
    """
    batch, head, both, tile = place_of(heads, key_tiles, False)
    start = tile * N
    eps = epsilon_of(alpha, head % alphas, tl.float32)
    q += (batch * q_batch + head * q_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    do += (batch * do_batch + head * do_head) * UNIT
    dk += (batch * dk_batch + head * dk_head) * UNIT
    dv += (batch * dv_batch + head * dv_head) * UNIT
    lam += both * queries
    if padding is not None:
        padding += batch * padding_stride
    if DROPOUT:
        seed = tl.load(seed)
    k_tile = load_rows(k, start, keys, k_row * UNIT, head_dim, N, D, WHOLE)
    v_tile = load_rows(v, start, keys, v_row * UNIT, head_dim, N, D, WHOLE)
    begin = keys * 0
    if CAUSAL:
        begin = start // M
    count = query_tiles - begin
    if flags is not None:
        slots = (key_tiles + slot_tiles - 1) // slot_tiles
        flags += both * query_tiles * slots + tile // slot_tiles
        scratch += (both * key_tiles + tile) * query_tiles
        count = list_by_flags(scratch, flags, slots, begin, query_tiles, 1, query_tiles)
        tl.debug_barrier()

    grad_k = tl.zeros([N, D], tl.float32)
    grad_v = tl.zeros([N, D], tl.float32)
    for i in range(0, count):
        first = (begin + i) * M
        if flags is not None:
            first = tl.load(scratch + i).to(tl.int32) * M
        if first >= 0 if DROPOUT else True:  # see :func:`dropped`
            q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
            do_tile = load_rows(do, first, queries, do_row * UNIT, head_dim, M, D, WHOLE)
            row_lam = load_numbers(lam, first, queries, float("inf"), M)
            row_mean = load_numbers(mean + both * queries, first, queries, 0.0, M)
            z = scores_of(q_tile, k_tile, first, start, keys, padding, scale, M, N, CAUSAL, PRECISION)
            p, w = weights_at(z, row_lam, eps, COARSE)
            p = dropped(p, seed, threshold, inverse_share, both * queries + first, start, M, N, DROPOUT)
            grad_v += product(tl.trans(p.to(do_tile.dtype)), do_tile, PRECISION)
            g = product(do_tile, tl.trans(v_tile), PRECISION)
            g = dropped(g, seed, threshold, inverse_share, both * queries + first, start, M, N, DROPOUT)
            dz = (w * (g - row_mean[:, None])).to(q_tile.dtype)
            grad_k += product(tl.trans(dz), q_tile, PRECISION)
    grad_k = (grad_k * scale).to(dk.dtype.element_ty)
    store_rows(dk, grad_k, start, keys, dk_row * UNIT, head_dim, N, D, WHOLE)
    store_rows(dv, grad_v.to(dv.dtype.element_ty), start, keys, dv_row * UNIT, head_dim, N, D, WHOLE)


# ----------------------------------------------------------- where a head's keys fit into one tile


@kernel
def backward_short(
    q, q_batch, q_head, q_row,
    k, k_batch, k_head, k_row,
    v, v_batch, v_head, v_row,
    do, do_batch, do_head, do_row,
    dq, dq_batch, dq_head, dq_row,
    dk, dk_batch, dk_head, dk_row,
    dv, dv_batch, dv_head, dv_row,
    lam, partial, alpha, padding, padding_stride,
    heads, alphas, queries, keys, head_dim, scale, seed, threshold, inverse_share,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, UNIT: tl.constexpr, WHOLE: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """All gradients of a head with at most N keys, in one tile, M queries at a time.

    ``partial`` (batch × heads,): the head's contribution to the gradient of α; None if α needs no gradient.
    """
    batch, head, both, _ = place_of(heads, 1, False)
    eps = epsilon_of(alpha, head % alphas, tl.float32)
    q += (batch * q_batch + head * q_head) * UNIT
    k += (batch * k_batch + head * k_head) * UNIT
    v += (batch * v_batch + head * v_head) * UNIT
    do += (batch * do_batch + head * do_head) * UNIT
    dq += (batch * dq_batch + head * dq_head) * UNIT
    dk += (batch * dk_batch + head * dk_head) * UNIT
    dv += (batch * dv_batch + head * dv_head) * UNIT
    lam += both * queries
    if padding is not None:
        padding += batch * padding_stride
    if DROPOUT:
        seed = tl.load(seed)

    # Under a causal mask, the first half of the queries sees only the first half of the keys.
    HALVED: tl.constexpr = CAUSAL and N >= 2 * M
    HALF: tl.constexpr = N // 2 if HALVED else N
    TERMS: tl.constexpr = partial is not None
    row = both * queries
    k_tile = load_rows(k, 0, keys, k_row * UNIT, head_dim, HALF, D, WHOLE)
    v_tile = load_rows(v, 0, keys, v_row * UNIT, head_dim, HALF, D, WHOLE)
    grad_k = tl.zeros([HALF, D], tl.float32)
    grad_v = tl.zeros([HALF, D], tl.float32)
    grad_alpha = tl.zeros([M], tl.float32)
    for first in range(0, tl.minimum(queries, HALF) if HALVED else queries, M):
        q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
        do_tile = load_rows(do, first, queries, do_row * UNIT, head_dim, M, D, WHOLE)
        row_lam = load_numbers(lam, first, queries, float("inf"), M)
        p, w, g, terms = _weights_and_grads(
            q_tile, do_tile, k_tile, v_tile, row_lam, first, 0, keys, padding, scale, eps,
            row, seed, threshold, inverse_share, TERMS, M, HALF, CAUSAL, DROPOUT, PRECISION, COARSE,
        )  # fmt: skip
        g -= (tl.sum(g * w, 1) / or_one(tl.sum(w, 1)))[:, None]
        own_k, own_v, grad_q = _products(p, w, g, q_tile, do_tile, k_tile, PRECISION)
        grad_k += own_k
        grad_v += own_v
        if TERMS:
            grad_alpha += tl.sum(terms * g, 1)
        grad_q = (grad_q * scale).to(dq.dtype.element_ty)
        store_rows(dq, grad_q, first, queries, dq_row * UNIT, head_dim, M, D, WHOLE)
    if HALVED:
        k_next = load_rows(k, HALF, keys, k_row * UNIT, head_dim, HALF, D, WHOLE)
        v_next = load_rows(v, HALF, keys, v_row * UNIT, head_dim, HALF, D, WHOLE)
        grad_k_next = tl.zeros([HALF, D], tl.float32)
        grad_v_next = tl.zeros([HALF, D], tl.float32)
        for first in range(HALF, queries, M):
            q_tile = load_rows(q, first, queries, q_row * UNIT, head_dim, M, D, WHOLE)
            do_tile = load_rows(do, first, queries, do_row * UNIT, head_dim, M, D, WHOLE)
            row_lam = load_numbers(lam, first, queries, float("inf"), M)
            p, w, g, terms = _weights_and_grads(
                q_tile, do_tile, k_tile, v_tile, row_lam, first, 0, keys, padding, scale, eps,
                row, seed, threshold, inverse_share, TERMS, M, HALF, False, DROPOUT, PRECISION, COARSE,
            )  # fmt: skip
            p_next, w_next, g_next, terms_next = _weights_and_grads(
                q_tile, do_tile, k_next, v_next, row_lam, first, HALF, keys, padding, scale, eps,
                row, seed, threshold, inverse_share, TERMS, M, HALF, True, DROPOUT, PRECISION, COARSE,
            )  # fmt: skip
            mean = tl.sum(g * w, 1) + tl.sum(g_next * w_next, 1)
            mean = mean / or_one(tl.sum(w, 1) + tl.sum(w_next, 1))
            g -= mean[:, None]
            g_next -= mean[:, None]
            own_k, own_v, grad_q = _products(p, w, g, q_tile, do_tile, k_tile, PRECISION)
            grad_k += own_k
            grad_v += own_v
            own_k, own_v, own_q = _products(p_next, w_next, g_next, q_tile, do_tile, k_next, PRECISION)
            grad_k_next += own_k
            grad_v_next += own_v
            if TERMS:
                grad_alpha += tl.sum(terms * g, 1) + tl.sum(terms_next * g_next, 1)
            grad_q = ((grad_q + own_q) * scale).to(dq.dtype.element_ty)
            store_rows(dq, grad_q, first, queries, dq_row * UNIT, head_dim, M, D, WHOLE)
        grad_k_next = (grad_k_next * scale).to(dk.dtype.element_ty)
        store_rows(dk, grad_k_next, HALF, keys, dk_row * UNIT, head_dim, HALF, D, WHOLE)
        grad_v_next = grad_v_next.to(dv.dtype.element_ty)
        store_rows(dv, grad_v_next, HALF, keys, dv_row * UNIT, head_dim, HALF, D, WHOLE)
    grad_k = (grad_k * scale).to(dk.dtype.element_ty)
    store_rows(dk, grad_k, 0, keys, dk_row * UNIT, head_dim, HALF, D, WHOLE)
    store_rows(dv, grad_v.to(dv.dtype.element_ty), 0, keys, dv_row * UNIT, head_dim, HALF, D, WHOLE)
    if TERMS:
        tl.store(partial + both, tl.sum(grad_alpha, 0))


@triton.jit
def _weights_and_grads(
    q_tile, do_tile, k_tile, v_tile, row_lam, first, first_key, keys, padding, scale, eps,
    row, seed, threshold, inverse_share, TERMS: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, COARSE: tl.constexpr,
):  # fmt: skip
    """p, w, g, and the terms of α's gradient if TERMS, of M queries and N keys; p and g after dropout."""
    z = scores_of(q_tile, k_tile, first, first_key, keys, padding, scale, M, N, CAUSAL, PRECISION)
    g = product(do_tile, tl.trans(v_tile), PRECISION)
    p, w, terms = weights_and_terms(z, row_lam, eps, TERMS, COARSE)
    p = dropped(p, seed, threshold, inverse_share, row + first, first_key, M, N, DROPOUT)
    g = dropped(g, seed, threshold, inverse_share, row + first, first_key, M, N, DROPOUT)
    return p, w, g, terms


@triton.jit
def _products(p, w, g, q_tile, do_tile, k_tile, PRECISION: tl.constexpr):
    """Gradients of N keys, N values and M queries from g − ḡ; the first and the last are not yet scaled."""
    dz = (w * g).to(q_tile.dtype)
    grad_v = product(tl.trans(p.to(do_tile.dtype)), do_tile, PRECISION)
    return product(tl.trans(dz), q_tile, PRECISION), grad_v, product(dz, k_tile, PRECISION)
