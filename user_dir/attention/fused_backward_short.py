"""Triton kernel of the backward pass of fused attention where a head's keys fit into one tile.

Notation as in :mod:`.fused_backward`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..entmax.triton_powers import or_one
from .fused_backward import kernel
from .fused_tiles import (
    dropped,
    epsilon,
    load_numbers,
    load_rows,
    place_of,
    product,
    scores_of,
    store_rows,
    weights_and_terms,
    weights_at,
)


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
    eps = epsilon(alpha, head, alphas)
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
    if TERMS:
        p, w, terms = weights_and_terms(z, row_lam, eps, COARSE)
    else:
        p, w = weights_at(z, row_lam, eps, COARSE)
        terms = w
    p = dropped(p, seed, threshold, inverse_share, row + first, first_key, M, N, DROPOUT)
    g = dropped(g, seed, threshold, inverse_share, row + first, first_key, M, N, DROPOUT)
    return p, w, g, terms


@triton.jit
def _products(p, w, g, q_tile, do_tile, k_tile, PRECISION: tl.constexpr):
    """Gradients of keys and queries, but for the scale, and of values, from g − ḡ of M queries and N keys."""
    dz = (w * g).to(q_tile.dtype)
    grad_v = product(tl.trans(p.to(do_tile.dtype)), do_tile, PRECISION)
    return product(tl.trans(dz), q_tile, PRECISION), grad_v, product(dz, k_tile, PRECISION)
