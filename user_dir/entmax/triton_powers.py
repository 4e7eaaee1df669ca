"""Triton functions for the weights at a known λ: powers of u = [1 + ε (z − λ)]₊ and what gradients need."""

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
