"""Rank correlation of two measures of the same heads."""

from __future__ import annotations

import math
from collections.abc import Sequence


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, float | None]:
    """Spearman's ρ of two measures of the same heads, and its two-sided p-value of no correlation.

    The p-value takes the heads as independent and is of one model; adjust it if there are several tests. Both
    are None for fewer than three heads, or where a measure is the same for all.
    """
    if len(first) < 3 or constant(first) or constant(second):
        return None, None
    from scipy import stats  # takes a second to import

    rho, p_value = stats.spearmanr(first, second)
    return float(rho), float(p_value)


def constant(values: Sequence[float]) -> bool:
    """Whether all values are the same but for rounding."""
    return math.isclose(min(values), max(values), rel_tol=1e-6, abs_tol=1e-12)
