"""α-entmax and its loss as Triton row kernels: the method of ``reference`` with few reads of memory.

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

from .reference import LossSettings, new_loss_results, working_dtype
from .rows import alpha_per_row, as_rows, from_rows, gradient_of_alpha
from .triton_solver import (
    LOG2_E,
    alpha_terms,
    epsilon_of,
    exact_power,
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
_RUN_TIME += ["target", "losses", "support", "solutions", "ignored"]
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


def loss_forward(scores: Tensor, target: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, sizes of the support, and max z, λ and Σ p for the backward; see ``reference``."""
    results = new_loss_results(scores, target)
    _launch_loss(_loss_forward, (scores, target, *results), settings)
    return results


def loss_backward(
    scores: Tensor, target: Tensor, settings: LossSettings, solutions: Tensor, grad: Tensor
) -> Tensor:
    """The gradient of the scores; see ``reference``."""
    grad_scores = torch.empty_like(scores)
    _launch_loss(_loss_backward, (scores, target, solutions, grad.contiguous(), grad_scores), settings)
    return grad_scores


def _launch_loss(kernel, tensors: tuple[Tensor, ...], settings: LossSettings) -> None:
    scores, (rows, n) = tensors[0], tensors[0].shape
    # float64 on the device: a Python float would be passed as float32, and a copy would synchronise
    numbers = torch.full((2,), settings.label_smoothing, dtype=torch.float64, device=scores.device)
    numbers[:1].fill_(settings.alpha - 1)
    dtype = tl.float64 if scores.dtype == torch.float64 else tl.float32
    with torch.cuda.device_of(scores):
        arguments = *tensors, numbers, n, settings.ignore_index
        kernel[(rows,)](*arguments, TILE=TILE, DTYPE=dtype, num_warps=8, enable_fp_fusion=True)


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

    top, _, _ = _top(scores, n, TILE, DTYPE)
    top = tl.where(top == float("-inf"), 0.0, top)[:, None]

    lam = tl.zeros([1], DTYPE)
    if eps != 0:
        lam = _threshold(scores, n, top, eps, n > 0, TILE, DTYPE)
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
def _threshold(scores, n, top, eps, moving, TILE: tl.constexpr, DTYPE: tl.constexpr):
    """λ of one row relative to its maximum ``top``, for ε > 0; its starting value unless ``moving``."""
    columns = tl.arange(0, TILE)[None, :]
    width = first_width(n, eps)
    low = tl.zeros([1], DTYPE)
    lam = low + width
    steps = 0
    while moving:
        mass = tl.zeros([1, TILE], DTYPE)
        slope = tl.zeros([1, TILE], DTYPE)
        for first in range(0, n, TILE):
            p, w, _ = _weights(scores, first + columns, n, top, lam, eps, DTYPE)
            mass += p
            slope += w
        total = tl.sum(mass, 1)
        low = tl.where(total >= 1.0, lam, low)
        step, far, width = next_step(total, tl.sum(slope, 1), lam, width, eps)
        lam += step
        steps += 1
        moving = unfinished(far, steps)
    if eps > 1:
        lam = low
    return lam


@triton.jit
def _weights(scores, columns, n, top, lam, eps, DTYPE: tl.constexpr):
    """p = u^(1/ε), w = p/u and u − 1 of a tile, where u = [1 + ε (z − λ)]₊ and ε > 0."""
    x = eps * (_scores_at(scores, columns, n, DTYPE) - top - lam[:, None])
    p, w = exact_power(x, eps)
    return p, w, x


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
    p, g, log_p, w = _loaded(weights, grad, at, mask, eps, DTYPE)
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
        at = first + columns
        _, g, _, w = _loaded(weights, grad, at, at < n, eps, DTYPE)
        total += w
        weighted += g * w
    mean = tl.sum(weighted, 0) / or_one(tl.sum(total, 0))

    terms = tl.zeros([TILE], DTYPE)
    for first in range(0, n, TILE):
        at = first + columns
        p, g, log_p, w = _loaded(weights, grad, at, at < n, eps, DTYPE)
        tl.store(grad_scores + at, w * (g - mean), mask=at < n)
        if NEED_ALPHA:
            terms += alpha_terms(p, log_p, w, eps) * (g - mean)
    if NEED_ALPHA:
        tl.store(per_row + row, tl.sum(terms, 0))


@triton.jit
def _loaded(weights, grad, at, mask, eps, DTYPE: tl.constexpr):
    """p, g, log p and w = p^(1−ε), which is 0 outside the support, of a tile; NaN propagates."""
    p = tl.load(weights + at, mask=mask, other=0.0).to(DTYPE)
    g = tl.load(grad + at, mask=mask, other=0.0).to(DTYPE)
    tiny: tl.constexpr = 2.2250738585072014e-308 if p.dtype == tl.float64 else 1.1754943508222875e-38
    log_p = tl.log(tl.where(p < tiny, tiny, p))  # finite also where p is 0 or subnormal
    w = tl.exp2((1.0 - eps) * log_p * LOG2_E)
    return p, g, log_p, tl.where(p == 0, 0.0, tl.where(eps == 0, p, w))


# ------------------------------------------------------------------------------------------ the loss
#
# One program per row, which it reads tile by tile at each step. The forward pass keeps max z, λ and Σ p of a
# row, from which the backward pass computes p again. The value of the loss is that of ``loss_cpu.cpp``.


@_kernel
def _loss_forward(
    scores, target, losses, support, solutions, settings, n, ignored, TILE: tl.constexpr, DTYPE: tl.constexpr
):
    """Loss, support and (max z, λ, Σ p) of one row."""
    row = tl.program_id(0).to(tl.int64)
    own_column = tl.load(target + row)
    eps = tl.load(settings).to(DTYPE)
    smoothing = tl.load(settings + 1).to(DTYPE)
    scores += row * n
    columns = tl.arange(0, TILE)[None, :]
    nothing = tl.zeros([1, TILE], DTYPE)
    counted = own_column != ignored
    wrong = counted & ((own_column < 0) | (own_column >= n))  # to raise an error would synchronise

    top, whole, some_broken = _top(scores, n, TILE, DTYPE)
    some_broken = some_broken | wrong
    shift = tl.where((top == float("-inf")) | some_broken, 0.0, top)[:, None]
    lam = _threshold(scores, n, shift, eps, counted, TILE, DTYPE)
    mass = nothing
    slope = nothing
    excess = nothing
    used = tl.zeros([1, TILE], tl.int64)
    for first in range(0, n, TILE):
        p, w, x = _weights(scores, first + columns, n, shift, lam, eps, DTYPE)
        mass += p
        slope += w
        excess += tl.where(p > 0, p * x, 0.0)
        used += (p > 0).to(tl.int64)
    total = tl.sum(mass, 1)
    over = total - 1.0
    slopes = or_one(tl.sum(slope, 1))
    dual = lam + (over + tl.sum(excess, 1)) / (1.0 + eps) - over * over / (2.0 * slopes)
    own = tl.load(scores + tl.where(counted & (wrong == 0), own_column, 0)).to(DTYPE) - tl.sum(shift, 1)
    loss = dual - own
    if smoothing > 0:
        loss += smoothing * (own - (whole / n - tl.sum(shift, 1)))
    loss = tl.where(top == float("-inf"), float("inf"), loss)
    loss = tl.where(some_broken, float("nan"), loss)
    zero = tl.arange(0, 1)
    tl.store(losses + row + zero, tl.where(counted, loss, 0.0))
    tl.store(support + row + zero, tl.where(counted & (top == top) & (some_broken == 0), tl.sum(used, 1), 0))
    solutions += row * 3
    tl.store(solutions + zero, tl.where(some_broken & counted, float("nan"), top))
    tl.store(solutions + 1 + zero, lam)
    tl.store(solutions + 2 + zero, or_one(total))


@triton.jit
def _top(scores, n, TILE: tl.constexpr, DTYPE: tl.constexpr):
    """The maximum of a row, its sum, and whether it has a NaN or +∞."""
    columns = tl.arange(0, TILE)[None, :]
    top = tl.full([1, TILE], float("-inf"), DTYPE)
    broken = tl.zeros([1, TILE], tl.int32)
    sums = tl.zeros([1, TILE], DTYPE)
    for first in range(0, n, TILE):
        z = _scores_at(scores, first + columns, n, DTYPE)
        broken += (z != z).to(tl.int32)
        top = tl.maximum(top, z)
        sums += tl.where(first + columns < n, z, 0.0)
    greatest = tl.max(top, 1)
    return greatest, tl.sum(sums, 1), (tl.sum(broken, 1) > 0) | (greatest == float("inf"))


@_kernel
def _loss_backward(
    scores, target, solutions, grad, grad_scores, settings, n, ignored,
    TILE: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """grad · (p − (1 − s) e_y − s/n) of one row."""
    row = tl.program_id(0).to(tl.int64)
    own_column = tl.load(target + row)
    eps = tl.load(settings).to(DTYPE)
    smoothing = tl.load(settings + 1).to(DTYPE)
    zero = tl.arange(0, 1)
    top = tl.load(solutions + row * 3 + zero)
    lam = tl.load(solutions + row * 3 + 1 + zero)
    total = tl.load(solutions + row * 3 + 2 + zero)
    upstream = tl.load(grad + row)
    columns = tl.arange(0, TILE)[None, :]
    there = (own_column != ignored) & (top != float("-inf"))
    shift = tl.where(there, top, 0.0)[:, None]
    scores += row * n
    grad_scores += row * n
    for first in range(0, n, TILE):
        at = first + columns
        p, _, _ = _weights(scores, at, n, shift, lam, eps, DTYPE)
        gradient = p / total[:, None] - smoothing / n - tl.where(at == own_column, 1.0 - smoothing, 0.0)
        gradient = tl.where(top[:, None] == top[:, None], gradient, float("nan"))
        tl.store(grad_scores + at, tl.where(there[:, None], upstream * gradient, 0.0), mask=at < n)
