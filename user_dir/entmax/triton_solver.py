"""Triton functions that find λ, and the weights at a known λ: powers of u = [1 + ε (z − λ)]₊."""

from __future__ import annotations

import os

import triton
import triton.language as tl
from triton.language.extra import libdevice

LOG2_E = tl.constexpr(1.4426950408889634)
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
# The GPU's fast logarithm has an error of 2^-22, which becomes 2^-22/ε in a weight. From this ε on, that is
# below 16-bit precision.
MIN_COARSE = tl.constexpr(1 / 256)
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
    """:func:`solve` for rows whose maximum is 0 and ε > 0; the weights are not normalised."""
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
    """As :func:`_solve_by_newton` in fewer steps, for 16-bit precision and ε with :func:`has_curvature`."""
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
    """The end of λ's bracket relative to the maximum, (1 − n^−ε)/ε: the λ of n equal scores."""
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


# -------------------------------------------------------------------------------- weights at a known λ


@triton.jit
def epsilon_of(alpha, index, DTYPE: tl.constexpr):
    """ε = α − 1, subtracted before rounding to keep the digits of α near 1. NaN if α is out of range."""
    eps = tl.load(alpha + index).to(tl.float64) - 1.0
    return tl.where((eps >= 0) & (eps < float("inf")), eps, float("nan")).to(DTYPE)


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
def or_one(total):
    """The total as a divisor; 1 for a fully masked row, whose weights sum to 0 and stay 0."""
    return tl.where(total == 0, 1.0, total)


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
