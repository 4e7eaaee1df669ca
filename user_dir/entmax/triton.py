"""α-entmax as Triton row kernels: the method of ``reference`` with one read and one write of memory.

A program holds one row in registers (several if rows are short) and runs all its Newton steps there. Rows
longer than ``RESIDENT`` are read again tile by tile at each step, from the L2 cache. Kernels are compiled per
bucket of row lengths (the next power of two); the length itself, α and the batch size are run-time values
without specialisation, so training compiles one kernel per bucket. Results are deterministic: there are no
atomics, and a row's weights do not depend on other rows in the batch.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from .reference import working_dtype
from .rows import alpha_per_row, as_rows, from_rows, gradient_of_alpha

MIN_BUCKET = 16  # elements of the smallest bucket
RESIDENT = 4096  # elements of the longest row kept in registers
TILE = 2048  # elements per tile of a longer row
PER_WARP = 256  # elements per warp: eight per lane
SHORT_ROWS = 128  # elements of short rows handled by one warp

LOG2_E = tl.constexpr(1.4426950408889634)
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
# The GPU's fast logarithm has an error of 2^-22, which becomes 2^-22/ε in a weight. From this ε on, that is
# below 16-bit precision.
MIN_COARSE = tl.constexpr(1 / 256)
# Longest step of λ along which a weight is replaced by its expansion to second order in 16-bit precision.
MAX_LAST = tl.constexpr(1e-2)

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
def epsilon_of(alpha, index, DTYPE: tl.constexpr):
    """ε = α − 1, subtracted before rounding to keep the digits of α near 1. NaN if α is out of range."""
    eps = tl.load(alpha + index).to(tl.float64) - 1.0
    return tl.where((eps >= 0) & (eps < float("inf")), eps, float("nan")).to(DTYPE)


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


# -------------------------------------------------------- whole rows, also for the kernels of attention


@triton.jit
def solve(z, n, eps, ROWS: tl.constexpr, HASTY: tl.constexpr, COARSE: tl.constexpr):
    """α-entmax of whole rows z (ROWS, any) of n scores each: the weights and each row's λ.

    Args:
        z: scores, −∞ for missing columns.
        HASTY: skip the last evaluation of the weights where :func:`worth` says that it changes little.
        COARSE: accurate to 16-bit precision with a fraction of the instructions; implies HASTY.
    """
    top = tl.max(z, 1)
    top = tl.where(top == float("-inf"), 0.0, top)
    z = z - top[:, None]
    if eps == 0:
        p = tl.exp2(z * LOG2_E)
        lam = tl.log(or_one(tl.sum(p, 1)))
    else:
        if COARSE:  # a condition of its own: float64 does not compile with the fast logarithm
            if has_curvature(eps):
                p, lam = _solve_by_halley(z, n, eps, ROWS)
            else:
                p, lam = _solve_by_newton(z, n, eps, ROWS, True, True)
        else:
            p, lam = _solve_by_newton(z, n, eps, ROWS, HASTY, False)
    total = or_one(tl.sum(p, 1))
    return p * (1.0 / total)[:, None] if COARSE else p / total[:, None], top + lam


@triton.jit
def _solve_by_newton(z, n, eps, ROWS: tl.constexpr, HASTY: tl.constexpr, COARSE: tl.constexpr):
    """Weights, not normalised, and λ of rows whose maximum is 0: Newton's method, bisection for ε > 1."""
    width = first_width(n, eps)
    lam = tl.zeros([ROWS], z.dtype) + width
    low = tl.zeros([ROWS], z.dtype)
    step = low
    p = z
    slope = z
    steps = 0
    moving = n > 0
    while moving:
        p, slope = power(z, lam, eps, COARSE)
        mass = tl.sum(p, 1)
        low = tl.where(mass >= 1.0, lam, low)
        step, far, width = next_step(mass, tl.sum(slope, 1), lam, width, eps)
        if HASTY:
            far = far & worth(step, eps, COARSE)
        lam = tl.where(far, lam + step, lam)
        steps += 1
        moving = unfinished(far, steps)
    if eps > 1:
        lam = low
        p, slope = power(z, lam, eps, COARSE)
    else:
        # The last step is so short that p is linear along it, which saves another evaluation.
        lam += step
        p -= step[:, None] * slope
        p = tl.where(p < 0, 0.0, p)
    return p, lam


@triton.jit
def _solve_by_halley(z, n, eps, ROWS: tl.constexpr):
    """The same for 16-bit precision and an ε with :func:`has_curvature`, in fewer evaluations."""
    last = greatest_lam(n, eps)
    lam = tl.zeros([ROWS], z.dtype)
    step = lam
    u = z
    v = z
    steps = 0
    moving = n > 0
    while moving:
        u, v = coarse_powers(z, lam, eps)
        w = v * u
        step = halley_step(tl.sum(w * u, 1), tl.sum(w, 1), tl.sum(v, 1), lam, last, eps)
        far = tl.abs(step) > MAX_LAST
        lam = tl.where(far, lam + step, lam)
        steps += 1
        moving = unfinished(far, steps)
    # p along the last step to second order: u^(1/ε−2) (u² − u Δλ + ½ (1 − ε) Δλ²)
    p = v * ((u - step[:, None]) * u + (0.5 * (1.0 - eps) * step * step)[:, None])
    return at_least_zero(p), lam + step


@triton.jit
def has_curvature(eps):
    """Whether (1 − ε) u^(1/ε−2), a second derivative, is bounded, and coarse arithmetic exact enough."""
    return (eps >= MIN_COARSE) & (eps <= 0.5)


@triton.jit
def coarse_powers(z, lam, eps):
    """u = [1 + ε (z − λ)]₊ and v = u^(1/ε−2) for an ε with :func:`has_curvature`; v is 0 where u is.

    With these, p = v u² and −∂p/∂λ = v u: one logarithm and one power for all of them.
    """
    u = coarse_base(z, lam, eps)
    if eps == 0.5:
        v = tl.where(u > 0, 1.0, u)
    else:
        v = tl.exp2(fast_log2(u) * (1.0 / eps - 2.0))
        v = tl.where(u > 0, v, u)  # 1/ε may round to 2, and −∞ · 0 is NaN
    return u, v


@triton.jit
def halley_step(mass, slope, curvature, lam, last, eps):
    """Halley's step of λ on ‖u‖ = 1, not beyond ``last``, from the sums of v u², v u and v over a row."""
    newton = newton_step(mass, slope, eps)
    bend = 0.5 * (1.0 - eps) * (curvature / or_one(slope) - slope / or_one(mass))
    step = newton / tl.maximum(1.0 - newton * bend, 0.5)
    return tl.where(lam + step > last, last - lam, step)


@triton.jit
def worth(step, eps, COARSE: tl.constexpr):
    """Whether a Newton step must be followed by another evaluation of the weights.

    For ε ≤ ½ a weight has a second derivative in λ, so the error of a step this short is its square.
    """
    least = 1e-4 if COARSE else tl.where(eps > 0.5, 0.0, 1e-4)
    return tl.abs(step) > least


@triton.jit
def power(z, lam, eps, COARSE: tl.constexpr):
    """p = u^(1/ε) and w = p/u = −∂p/∂λ for u = [1 + ε (z − λ)]₊ and ε > 0; w is 0 outside the support."""
    if COARSE:
        if (eps >= MIN_COARSE) & (eps < 1.0) & (eps != 0.5):
            u = coarse_base(z, lam, eps)
            w = tl.exp2(fast_log2(u) * (1.0 / eps - 1.0))
            p = w * u
        else:
            p, w = exact_power(eps * (z - lam[:, None]), eps)
    else:
        p, w = exact_power(eps * (z - lam[:, None]), eps)
    return p, w


@triton.jit
def coarse_base(z, lam, eps):
    """u = [1 + ε (z − λ)]₊."""
    # in this order: 1 + ε z would round the 1 away for large z
    return at_least_zero(eps * (z - lam[:, None]) + 1.0)


@triton.jit
def fast_log2(u):
    """log₂ u by the GPU's fast instruction."""
    return tl.log2(u) if INTERPRETED else libdevice.fast_log2f(u)


@triton.jit
def at_least_zero(x):
    """[x]₊, with NaN propagated on every device."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def exact_power(x, eps):
    """p = u^(1/ε) and p/u = −∂p/∂λ for u = [1 + x]₊, x ≤ 0 and ε > 0; p/u is 0 outside the support."""
    x = tl.where(x < -1.0, -1.0, x)  # unlike maximum, propagates NaN on every device
    u = 1.0 + x
    if eps == 0.5:
        p = u * u
        slope = u
    elif eps == 1.0:
        p = u
        slope = tl.where(u > 0, 1.0, p)
    else:
        # log1p(x): add to log u what was lost by rounding 1 + x
        inverse = 1.0 / u
        log_u = tl.log(u) + tl.where(x > -0.5, (x - (u - 1.0)) * inverse, 0.0)
        p = tl.exp2(log_u * (LOG2_E / eps))
        slope = tl.where(u > 0, p * inverse, p)
    return p, slope


@triton.jit
def first_width(n, eps):
    """For ε > 1, half the bracket of λ; else 0, the starting point of Newton's method."""
    return tl.where(eps > 1, 0.5 * greatest_lam(n, eps), 0.0)


@triton.jit
def greatest_lam(n, eps):
    """The end of λ's bracket relative to the maximum, (1 − n^−ε)/ε: that of n equal scores."""
    return (1.0 - tl.exp2(-eps * tl.log2(n.to(eps.dtype)))) / eps


@triton.jit
def unfinished(far, steps):
    """Whether a row needs another step, of at most 64."""
    return (tl.max(far.to(tl.int32), 0) > 0) & (steps < 64)


@triton.jit
def next_step(mass, slope, lam, width, eps):
    """The step of λ, whether another step is needed, and the next width of the bracket.

    Newton's method on ‖u‖ = 1 for ε ≤ 1, which needs no bracket; else bisection.
    """
    if eps > 1:
        width = width * 0.5
        step = tl.where(mass >= 1.0, width, -width)
    else:
        step = newton_step(mass, slope, eps)
    rounding: tl.constexpr = 5e-16 if eps.dtype == tl.float64 else 2.5e-7
    resolution = tl.where(eps > 1, rounding / 32, 2 * rounding)
    return step, tl.abs(step) > resolution * (1.0 + lam), width


@triton.jit
def newton_step(mass, slope, eps):
    """(S − S^(1−ε)) / (εD), which tends to log S for ε → 0; 0 for a row without weights."""
    y = -eps * tl.log(mass)  # its accuracy only affects the convergence rate
    expm1 = tl.where(y > -0.1, y * (1.0 + y * (0.5 + y * (1 / 6))), tl.exp(y) - 1.0)
    return tl.where(mass > 0, -mass * expm1 / (eps * slope), 0.0)


@triton.jit
def or_one(total):
    """The total as a divisor; 1 for a fully masked row, whose weights sum to 0 and stay 0."""
    return tl.where(total == 0, 1.0, total)


# ------------------------------------------------------------------------------------------ backward


@_kernel
def _backward_resident(
    weights,
    grad,
    grad_scores,
    per_row,
    alpha,
    n,
    repeat,
    alphas,
    ROWS: tl.constexpr,
    BUCKET: tl.constexpr,
    NEED_ALPHA: tl.constexpr,
    DTYPE: tl.constexpr,
):
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
    weights,
    grad,
    grad_scores,
    per_row,
    alpha,
    n,
    repeat,
    alphas,
    TILE: tl.constexpr,
    NEED_ALPHA: tl.constexpr,
    DTYPE: tl.constexpr,
):
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


@triton.jit
def alpha_terms(p, log_p, w, eps):
    """p r, with r = −(e^s − 1 − s)/ε² and s = −ε log p ≥ 0."""
    s = -eps * log_p
    near = p * log_p * log_p * _phi2(tl.where(s > 1.0, 1.0, s))
    floor = tl.where(eps < 1e-3, 1e-3, eps)  # s ≥ 1 implies a larger ε
    far = (w - p - p * s) * (1.0 / (floor * floor))
    return tl.where(p == 0, 0.0, -tl.where(s > 1.0, far, near))


@triton.jit
def _phi2(s):
    """(e^s − 1 − s)/s² for 0 ≤ s ≤ 1 by its power series, all of whose terms are positive."""
    if s.dtype == tl.float64:
        phi = s * 0.0 + 1.0
        for k in tl.static_range(18):
            phi = 1.0 + phi * s * (1.0 / (20 - k))
        phi = 0.5 * phi
    else:  # 1/2! … 1/11!
        phi = s * 2.505210838544172e-8 + 2.755731922398589e-7
        phi = phi * s + 2.7557319223985893e-6
        phi = phi * s + 2.48015873015873e-5
        phi = phi * s + 1.984126984126984e-4
        phi = phi * s + 1.388888888888889e-3
        phi = phi * s + 8.333333333333333e-3
        phi = phi * s + 4.1666666666666664e-2
        phi = phi * s + 1.6666666666666666e-1
        phi = phi * s + 0.5
    return phi
