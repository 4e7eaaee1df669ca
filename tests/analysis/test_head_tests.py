"""Silverman's test of the number of modes."""

import numpy as np
import pytest
from scipy.signal import argrelmax
from scipy.stats import gaussian_kde, permutation_test, spearmanr

from user_dir.analysis.head_tests import critical_bandwidth, modes_test, rank_correlation


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


@pytest.mark.parametrize("heads", (3, 4, 5))
def test_the_p_value_of_few_heads_is_exact(heads):
    """As of scipy's test over all permutations; by the approximation for many, three heads would suffice."""
    random = np.random.default_rng(heads)
    first = np.arange(heads)
    for second in (random.random(heads), random.integers(0, 3, heads), first, -first):
        exact = permutation_test(
            (second,), lambda each: spearmanr(first, each)[0], permutation_type="pairings", n_resamples=np.inf
        )
        rho, p = rank_correlation(first, second)
        assert rho == pytest.approx(exact.statistic)
        assert p == pytest.approx(exact.pvalue)
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx((1, 1 / 3))


def test_the_p_value_of_many_heads_is_that_of_scipy():
    first, second = np.random.default_rng(1).random((2, 48))
    assert rank_correlation(first, second) == pytest.approx(tuple(spearmanr(first, second)))
