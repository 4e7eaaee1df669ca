"""Tests of measures of the heads: rank correlation, and whether their density has several modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np

_EXACT = 8  # heads up to which all orders are tried, 40,320
_MIN_VALUES = 8  # values that a density is estimated from
_POINTS = 256  # at which it is evaluated
_BATCH = 100  # samples evaluated at a time


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, float | None]:
    """Spearman's ρ of two measures of the same heads, and its two-sided p-value of no correlation.

    The p-value takes the heads as independent and is of one model; adjust it if there are several tests. Both
    are None for fewer than three heads, or where a measure is the same for all.
    """
    if len(first) < 3 or constant(first) or constant(second):
        return None, None
    from scipy import stats  # takes a second to import

    rho, p_value = stats.spearmanr(first, second)
    if len(first) <= _EXACT:  # scipy's is an approximation for many: 0 of three heads in the same order
        one, other = (each - each.mean() for each in map(stats.rankdata, (first, second)))
        sums = abs(other[list(permutations(range(len(first))))] @ one)
        p_value = (sums > abs(other @ one) - 1e-9).mean()
    return float(rho), float(p_value)


def constant(values: Sequence[float]) -> bool:
    """Whether all values are the same but for rounding."""
    return math.isclose(min(values), max(values), rel_tol=1e-6, abs_tol=1e-12)


def modes_test(values: Sequence[float], samples: int = 1000, seed: int = 1) -> float | None:
    """The p-value of "the density has one mode"; small where it has more.

    The critical bandwidth is the least at which the estimate has one mode. Samples are drawn from that
    estimate; p is the share of them that have more at this bandwidth. The test is known to be conservative.

    Returns p; None for fewer than eight values, or if all are the same.

    Source: Silverman 1981 (https://doi.org/10.1111/j.2517-6161.1981.tb01155.x).
    """
    if len(values) < _MIN_VALUES or constant(values):
        return None
    values = np.asarray(values, dtype=float)
    bandwidth = critical_bandwidth(values)
    generator = np.random.default_rng(seed)
    shape = samples, len(values)
    drawn = generator.choice(values, shape) + bandwidth * generator.standard_normal(shape)
    # Smoothing adds h² to the variance, which is taken back.
    drawn = values.mean() + (drawn - values.mean()) / np.sqrt(1 + (bandwidth / values.std()) ** 2)
    batches = (drawn[start : start + _BATCH] for start in range(0, samples, _BATCH))
    more = sum(int((_count(batch, bandwidth) > 1).sum()) for batch in batches)
    return (more + 1) / (samples + 1)


def critical_bandwidth(values: np.ndarray) -> float:
    """The least bandwidth at which a Gaussian kernel density estimate has one mode.

    The number of modes never grows with the bandwidth, so it is found by bisection.
    """
    low, high = 0.0, float(np.ptp(values))
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _count(values[None], middle)[0] > 1 else (low, middle)
    return high


def _count(samples: np.ndarray, bandwidth: float) -> np.ndarray:
    """The number of modes (S,) of the density estimates of samples (S, n)."""
    grid = np.linspace(samples.min() - bandwidth, samples.max() + bandwidth, _POINTS)
    distances = (grid[None, :, None] - samples[:, None, :]) / bandwidth
    slopes = np.diff(np.exp(-0.5 * distances**2).sum(2), axis=1)
    return ((slopes[:, :-1] > 0) & (slopes[:, 1:] <= 0)).sum(1)
