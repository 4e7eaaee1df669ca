"""Triton functions that find λ, for whole rows and step by step."""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_powers import (
    LOG2_E,
    at_least_zero,
    coarse_powers,
    has_curvature,
    or_one,
    power,
)

# Longest step of λ along which a weight is replaced by its expansion to second order in 16-bit precision.
MAX_LAST = tl.constexpr(1e-2)


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
        p, lam = solve_below_zero(z, n, eps, ROWS, HASTY, COARSE)
    total = or_one(tl.sum(p, 1))
    return p * (1.0 / total)[:, None] if COARSE else p / total[:, None], top + lam


@triton.jit
def solve_below_zero(z, n, eps, ROWS: tl.constexpr, HASTY: tl.constexpr, COARSE: tl.constexpr):
    """The same for rows whose maximum is 0, for ε > 0 and without normalising the weights."""
    if COARSE:  # a condition of its own: float64 does not compile with the fast logarithm
        if has_curvature(eps):
            p, lam = _solve_by_halley(z, n, eps, ROWS)
        else:
            p, lam = _solve_by_newton(z, n, eps, ROWS, True, True)
    else:
        p, lam = _solve_by_newton(z, n, eps, ROWS, HASTY, False)
    return p, lam


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
