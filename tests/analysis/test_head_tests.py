"""Silverman's test of the number of modes."""

import numpy as np
import pytest
from scipy.signal import argrelmax
from scipy.stats import gaussian_kde

from user_dir.analysis.head_tests import critical_bandwidth, modes_test


def normal(mean: float, deviation: float, count: int, seed: int = 1) -> np.ndarray:
    return mean + deviation * np.random.default_rng(seed).standard_normal(count)


TWO = np.concatenate([normal(1.2, 0.04, 24), normal(1.8, 0.04, 24, seed=2)])


@pytest.mark.parametrize("values", (TWO, TWO[::2], normal(1.3, 0.1, 16)))
def test_the_critical_bandwidth_is_where_a_second_mode_appears(values):
    """Compared with scipy's density estimate."""
    bandwidth = critical_bandwidth(values)
    grid = np.linspace(0.9, 2.1, 4000)

    def found(width: float) -> int:
        return len(argrelmax(gaussian_kde(values, width / values.std(ddof=1))(grid))[0])

    assert found(1.02 * bandwidth) == 1
    assert found(0.98 * bandwidth) == 2


def test_two_modes_are_told_from_one():
    assert modes_test(TWO) < 0.01
    assert modes_test(normal(1.3, 0.05, 48)) > 0.1
    assert modes_test(TWO) == modes_test(list(TWO)), "the same samples are drawn"


def test_location_and_scale_do_not_matter():
    p = modes_test(TWO[::3], samples=200)
    assert modes_test(10 * TWO[::3] - 3, samples=200) == pytest.approx(p, abs=0.011)


def test_one_mode_is_rarely_rejected():
    rejected = sum(modes_test(normal(1.3, 0.1, 16, seed), samples=100) < 0.05 for seed in range(40))
    assert rejected <= 4


def test_too_few_or_equal_values_are_not_tested():
    assert modes_test([1.2, 1.3]) is modes_test([1.5] * 16) is None
    assert modes_test([1.5] * 15 + [1.9]) < 0.2
