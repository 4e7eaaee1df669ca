"""How far two systems differ, judged over random seeds and test sentences together.

Sentences are drawn with replacement, all translations of a sentence together. Seeds are not drawn: with three
of them, a 95 % interval from resamples would cover the truth about 73 times in 100. The seeds' error follows
Student's t instead, with the standard error of the differences by seed. This already contains how sentences
affect each seed separately; the sentence error that the seeds share is added to it. The sum has the
Behrens-Fisher distribution, whose intervals cover at least what they claim. Since few seeds can agree by
chance more closely than the sentences allow, no interval is narrower, and no p-value smaller, than the
bootstrap's over sentences for these very models.

Sources: Koehn 2004 (bootstrap over sentences); Berg-Kirkpatrick et al. 2012; Welch 1938 and Fisher 1935 (sums
of errors with different degrees of freedom); Schuirmann 1987 (two one-sided tests); Holm 1979.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95
"""Confidence of the intervals."""


@dataclass(frozen=True)
class Difference:
    """A difference of two systems with its uncertainty; with one seed, that of sentences alone."""

    mean: float  # over seeds
    seeds: int
    seed_error: float  # standard error of the mean over seeds; 0 with one seed
    sentence_errors: np.ndarray  # of the mean, for these models, one for each resample: (B,)
    shared_errors: np.ndarray  # the part of them that the seeds share, (B,)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The central confidence interval; ``level`` between 0 and 1."""
        tails = (1 - level) / 2, (1 + level) / 2
        low, high = (self.mean + float(error) for error in np.quantile(self.sentence_errors, tails))
        if self.seed_error > 0:
            from scipy.optimize import brentq
            from scipy.special import stdtrit

            reach = stdtrit(self.seeds - 1, tails[1]) * self.seed_error + abs(self.shared_errors).max()
            ends = self.mean - 1.01 * reach, self.mean + 1.01 * reach
            low = min(low, brentq(lambda x: self._seeds_at_most(x) - tails[0], *ends))
            high = max(high, brentq(lambda x: self._seeds_at_most(x) - tails[1], *ends))
        return low, high

    def p_at_most(self, bound: float) -> float:
        """One-sided p-value of the hypothesis that the true difference is at most ``bound``."""
        at_most = np.count_nonzero(self.mean + self.sentence_errors <= bound)
        p = (at_most + 1) / (len(self.sentence_errors) + 1)
        return max(p, self._seeds_at_most(bound)) if self.seed_error > 0 else p

    def p_at_least(self, bound: float) -> float:
        """One-sided p-value of the hypothesis that the true difference is at least ``bound``."""
        errors = -self.sentence_errors, -self.shared_errors
        return Difference(-self.mean, self.seeds, self.seed_error, *errors).p_at_most(-bound)

    def p_differs(self) -> float:
        """Two-sided p-value of no difference."""
        return min(1.0, 2 * min(self.p_at_most(0.0), self.p_at_least(0.0)))

    def p_equivalent(self, margin: float) -> float:
        """P-value of a difference of ``margin`` or more: the larger of two one-sided tests (TOST)."""
        return max(self.p_at_most(-margin), self.p_at_least(margin))

    def _seeds_at_most(self, bound: float) -> float:
        """Confidence that the difference is at most ``bound``: Student's t, averaged over shared errors."""
        from scipy.special import stdtr

        return float(stdtr(self.seeds - 1, (bound - self.mean - self.shared_errors) / self.seed_error).mean())


def difference(deltas: Sequence[float], resampled: np.ndarray) -> Difference:
    """What seeds and sentences together say about the difference of two systems.

    Args:
        deltas: the difference of the scores of each seed, (S,); the n-th model of one system is paired with
            the n-th of the other. Differences of seeds are taken to be normally distributed.
        resampled: the same differences for each resample of the sentences, (B, S). A row is one resample: a
            sentence that is drawn brings its translations by all seeds and both systems.
    """
    deltas = np.asarray(deltas, dtype=float)
    seeds = len(deltas)
    errors = resampled - resampled.mean(0)  # (B, S)
    sentences = errors.mean(1)
    if seeds == 1:
        return Difference(float(deltas[0]), 1, 0.0, sentences, sentences)
    # The variance of the mean over seeds has a part that all seeds share, and a part from each seed alone.
    # The covariances between seeds hold only the shared part; the spread of `deltas` has the other already.
    covariance = errors.T @ errors / (len(errors) - 1)  # (S, S)
    common = (covariance.sum() - covariance.trace()) / (seeds * (seeds - 1))
    total = covariance.mean()
    shared = sentences * (math.sqrt(max(common, 0.0) / total) if total > 0 else 0.0)
    seed_error = float(deltas.std(ddof=1)) / math.sqrt(seeds)
    return Difference(float(deltas.mean()), seeds, seed_error, sentences, shared)


def resampled_scores(
    counts: np.ndarray, score: Callable[[np.ndarray], float], resamples: int = RESAMPLES, seed: int = 12345
) -> np.ndarray:
    """Scores of a corpus metric on B ``resamples`` of the test set: (M, B).

    ``counts`` (M, N, K) are the metric's K counts for each of N sentences, in M translations of the test set;
    ``score`` computes the metric from counts (K,) summed over sentences. All translations get the same draws,
    so differences of scores are paired.
    """
    counts = np.asarray(counts, dtype=float)
    sentences = counts.shape[1]
    times = np.random.default_rng(seed).multinomial(sentences, np.full(sentences, 1 / sentences), resamples)
    return np.array([[score(row) for row in times.astype(float) @ table] for table in counts])


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for all tests of a family, by Holm's step-down method.

    Rejecting those adjusted below 0.05 makes any false rejection in the family at most 5 % likely, however
    the tests depend on each other.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
