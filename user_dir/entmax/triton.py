"""α-entmax as Triton row kernels: the method of ``reference`` with one read and one write of memory.

A program holds one row in registers (several if rows are short) and runs all its Newton steps there. Rows
longer than ``RESIDENT`` are read again tile by tile at each step, from the L2 cache. Kernels are compiled per
bucket of row lengths (the next power of two); the length itself, α and the batch size are run-time values
without specialisation, so training compiles one kernel per bucket. Results are deterministic: there are no
atomics, and a row's weights do not depend on other rows in the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .reference import working_dtype
from .rows import alpha_per_row, as_rows, from_rows, gradient_of_alpha
from .triton_solver import (
    LOG2_E,
    alpha_terms,
    epsilon_of,
    first_width,
    next_step,
    or_one,
    power,
    solve,
    unfinished,
)

MIN_BUCKET = 16  # elements of the smallest bucket
RESIDENT = 4096  # elements of the longest row kept in registers
TILE = 2048  # elements per tile of a longer row
PER_WARP = 256  # elements per warp: eight per lane
SHORT_ROWS = 128  # elements of short rows handled by one warp

# Kernels are compiled per constexprs and dtypes only. Specialising on integers that are 1 or multiples of 16,
# or on aligned addresses, gains nothing, because rows begin at arbitrary multiples of n.
_RUN_TIME = ["scores", "weights", "grad", "grad_scores", "per_row", "alpha", "n", "repeat", "alphas"]
_kernel = triton.jit(do_not_specialize=_RUN_TIME)


def entmax_forward(scores: Tensor, alpha: Tensor, dim: int = -1) -> Tensor:
    """The weights α-entmax(scores) along ``dim``; see :func:`reference.entmax_forward`.

    An α below 1, infinite or NaN gives NaN weights: raising an error would need a synchronisation.
    """
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    z = as_rows(scores, dim)
    weights = torch.empty_like(z)
    _launch(_forward_resident, _forward_tiled, (z, weights), *alpha_per_row(alpha, scores, dim))
    return from_rows(weights, scores, dim)


def entmax_backward(
    weights: Tensor, alpha: Tensor, grad: Tensor, dim: int = -1, need_alpha: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Gradients of α-entmax from its output; see :func:`reference.entmax_backward`."""
    if weights.numel() == 0:
        return torch.zeros_like(weights), torch.zeros_like(alpha) if need_alpha else None
    p, g = as_rows(weights, dim), as_rows(grad, dim)
    grad_scores = torch.empty_like(p)
    per_row = torch.empty(p.size(0) if need_alpha else 0, dtype=working_dtype(p.dtype), device=p.device)
    tensors = (p, g, grad_scores, per_row)
    alphas = alpha_per_row(alpha, weights, dim)
    _launch(_backward_resident, _backward_tiled, tensors, *alphas, NEED_ALPHA=need_alpha)
    grad_alpha = gradient_of_alpha(per_row, alpha, weights, dim) if need_alpha else None
    return from_rows(grad_scores, weights, dim), grad_alpha


def _launch(resident, tiled, tensors: tuple[Tensor, ...], alpha: Tensor, repeat: int, **constants) -> None:
    """Run the kernel that suits rows (count, n); α and repeat are those of :func:`rows.alpha_per_row`."""
    count, n = tensors[0].shape
    if alpha.numel() == 1:
        repeat = count
    arguments = (*tensors, alpha.to(tensors[0].device), n, repeat, alpha.numel())
    constants["DTYPE"] = tl.float64 if tensors[0].dtype == torch.float64 else tl.float32
    constants["enable_fp_fusion"] = True  # the default differs between Triton versions
    with torch.cuda.device_of(tensors[0]):
        if n > RESIDENT:
            tiled[(count,)](*arguments, TILE=TILE, num_warps=8, **constants)
            return
        bucket = max(MIN_BUCKET, triton.next_power_of_2(n))
        # Only rows that share an entry of α: a program branches on α.
        together = max(1, SHORT_ROWS // bucket) if repeat > 1 else 1
        programs = count // repeat * triton.cdiv(repeat, together)
        warps = min(8, max(1, bucket // PER_WARP))
        resident[(programs,)](*arguments, ROWS=together, BUCKET=bucket, num_warps=warps, **constants)


# ------------------------------------------------------------------------------------------- forward


@_kernel
def _forward_resident(
    scores, weights, alpha, n, repeat, alphas, ROWS: tl.constexpr, BUCKET: tl.constexpr, DTYPE: tl.constexpr
):
    """Rows of at most BUCKET scores, ROWS per program."""
    at, mask, _, _, run = _tile(n, repeat, ROWS, BUCKET)
    eps = epsilon_of(alpha, run % alphas, DTYPE)
    z = tl.load(scores + at, mask=mask, other=float("-inf")).to(DTYPE)
    p, _ = solve(z, n, eps, ROWS, False, False)
    tl.store(weights + at, p, mask=mask)


@_kernel
def _forward_tiled(scores, weights, alpha, n, repeat, alphas, TILE: tl.constexpr, DTYPE: tl.constexpr):
    """One row of any length per program, read again at each step."""
    row = tl.program_id(0)
    eps = epsilon_of(alpha, row // repeat % alphas, DTYPE)
    scores += row.to(tl.int64) * n
    weights += row.to(tl.int64) * n
    columns = tl.arange(0, TILE)[None, :]
    nothing = tl.zeros([1, TILE], DTYPE)

    top = nothing + float("-inf")
    for first in range(0, n, TILE):
        top = tl.maximum(top, _scores_at(scores, first + columns, n, DTYPE))
    top = tl.max(top, 1)
    top = tl.where(top == float("-inf"), 0.0, top)[:, None]

    lam = tl.zeros([1], DTYPE)
    if eps != 0:
        width = first_width(n, eps)
        low = lam
        lam += width
        steps = 0
        moving = n > 0
        while moving:
            mass = nothing
            slope = nothing
            for first in range(0, n, TILE):
                z = _scores_at(scores, first + columns, n, DTYPE) - top
                p, p_slope = power(z, lam, eps, False)
                mass += p
                slope += p_slope
            total = tl.sum(mass, 1)
            low = tl.where(total >= 1.0, lam, low)
            step, far, width = next_step(total, tl.sum(slope, 1), lam, width, eps)
            lam += step
            steps += 1
            moving = unfinished(far, steps)
        if eps > 1:
            lam = low

    mass = nothing
    for first in range(0, n, TILE):
        mass += _weights_at(_scores_at(scores, first + columns, n, DTYPE) - top, lam, eps)
    total = or_one(tl.sum(mass, 1))[:, None]
    for first in range(0, n, TILE):
        p = _weights_at(_scores_at(scores, first + columns, n, DTYPE) - top, lam, eps)
        tl.store(weights + first + columns, p / total, mask=first + columns < n)


@triton.jit
def _tile(n, repeat, ROWS: tl.constexpr, BUCKET: tl.constexpr):
    """Offsets and mask of a program's elements, its rows, a mask of valid rows, and its index into α."""
    programs = tl.cdiv(repeat, ROWS)  # per group of rows that share an entry of α
    run = tl.program_id(0) // programs
    place = tl.program_id(0) % programs * ROWS + tl.arange(0, ROWS)
    rows = run.to(tl.int64) * repeat + place
    columns = tl.arange(0, BUCKET)
    mask = (place < repeat)[:, None] & (columns < n)[None, :]
    return rows[:, None] * n + columns[None, :], mask, rows, place < repeat, run


@triton.jit
def _scores_at(scores, columns, n, DTYPE: tl.constexpr):
    return tl.load(scores + columns, mask=columns < n, other=float("-inf")).to(DTYPE)


@triton.jit
def _weights_at(z, lam, eps):
    """[1 + ε(z − λ)]₊^(1/ε), not normalised, for any ε ≥ 0."""
    if eps == 0:
        p = tl.exp2(z * LOG2_E)
    else:
        p, _ = power(z, lam, eps, False)
    return p


# ------------------------------------------------------------------------------------------ backward


@_kernel
def _backward_resident(
    weights, grad, grad_scores, per_row, alpha, n, repeat, alphas,
    ROWS: tl.constexpr, BUCKET: tl.constexpr, NEED_ALPHA: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """dz of ROWS rows, and their contributions to the gradient of α."""
    at, mask, rows, there, run = _tile(n, repeat, ROWS, BUCKET)
    eps = epsilon_of(alpha, run % alphas, DTYPE)
    p = tl.load(weights + at, mask=mask, other=0.0).to(DTYPE)
    g = tl.load(grad + at, mask=mask, other=0.0).to(DTYPE)
    log_p = _log(p)
    w = _skewed(p, log_p, eps)
    centred = g - (tl.sum(g * w, 1) / or_one(tl.sum(w, 1)))[:, None]
    tl.store(grad_scores + at, w * centred, mask=mask)
    if NEED_ALPHA:
        tl.store(per_row + rows, tl.sum(alpha_terms(p, log_p, w, eps) * centred, 1), mask=there)


@_kernel
def _backward_tiled(
    weights, grad, grad_scores, per_row, alpha, n, repeat, alphas,
    TILE: tl.constexpr, NEED_ALPHA: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """The same for one row of any length, read twice."""
    row = tl.program_id(0)
    eps = epsilon_of(alpha, row // repeat % alphas, DTYPE)
    weights += row.to(tl.int64) * n
    grad += row.to(tl.int64) * n
    grad_scores += row.to(tl.int64) * n
    columns = tl.arange(0, TILE)

    total = tl.zeros([TILE], DTYPE)
    weighted = tl.zeros([TILE], DTYPE)
    for first in range(0, n, TILE):
        mask = first + columns < n
        p = tl.load(weights + first + columns, mask=mask, other=0.0).to(DTYPE)
        g = tl.load(grad + first + columns, mask=mask, other=0.0).to(DTYPE)
        w = _skewed(p, _log(p), eps)
        total += w
        weighted += g * w
    mean = tl.sum(weighted, 0) / or_one(tl.sum(total, 0))

    terms = tl.zeros([TILE], DTYPE)
    for first in range(0, n, TILE):
        mask = first + columns < n
        p = tl.load(weights + first + columns, mask=mask, other=0.0).to(DTYPE)
        g = tl.load(grad + first + columns, mask=mask, other=0.0).to(DTYPE)
        log_p = _log(p)
        w = _skewed(p, log_p, eps)
        tl.store(grad_scores + first + columns, w * (g - mean), mask=mask)
        if NEED_ALPHA:
            terms += alpha_terms(p, log_p, w, eps) * (g - mean)
    if NEED_ALPHA:
        tl.store(per_row + row, tl.sum(terms, 0))


@triton.jit
def _log(p):
    """log p, finite also where p is 0 or subnormal."""
    tiny: tl.constexpr = 2.2250738585072014e-308 if p.dtype == tl.float64 else 1.1754943508222875e-38
    return tl.log(tl.where(p < tiny, tiny, p))


@triton.jit
def _skewed(p, log_p, eps):
    """w = p^(1−ε) on the support and 0 elsewhere; NaN propagates."""
    w = tl.exp2((1.0 - eps) * log_p * LOG2_E)
    return tl.where(p == 0, 0.0, tl.where(eps == 0, p, w))
