"""Intervals and tests over seeds and sentences: known cases, other libraries, coverage on simulated data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sacrebleu
from scipy import stats

from user_dir.translation.significance import difference, holm, resampled_scores

SEEDS, SENTENCES, RESAMPLES = 3, 60, 200


def simulated(rng, by_seed: float, by_sentence: float, by_both: float, seeds: int = SEEDS, mean: float = 0.0):
    """Deltas and resamples of a mean over sentences, with the standard deviations given."""
    table = mean + rng.normal(0, by_both, (SENTENCES, seeds))
    table += rng.normal(0, by_seed, seeds) + rng.normal(0, by_sentence, (SENTENCES, 1))
    times = rng.multinomial(SENTENCES, np.full(SENTENCES, 1 / SENTENCES), RESAMPLES)
    return table.mean(0), times @ table / SENTENCES


def test_without_errors_of_sentences_it_is_students_t():
    deltas = [0.43, -0.51, 0.47]
    ours = difference(deltas, np.tile(deltas, (50, 1)))
    theirs = stats.ttest_1samp(deltas, 0)
    assert ours.mean == pytest.approx(np.mean(deltas))
    assert ours.interval() == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert ours.interval(0.9) == pytest.approx(tuple(theirs.confidence_interval(0.9)))
    assert ours.p_differs() == pytest.approx(theirs.pvalue)
    lower = stats.ttest_1samp(deltas, -1.2, alternative="greater").pvalue
    upper = stats.ttest_1samp(deltas, 1.2, alternative="less").pvalue
    assert ours.p_equivalent(1.2) == pytest.approx(max(lower, upper))


@pytest.mark.parametrize("seeds", [1, 3])
def test_where_seeds_agree_it_is_the_bootstrap_over_sentences(seeds):
    rng = np.random.default_rng(2)
    values = rng.normal(0.3, 2, 400)
    times = rng.multinomial(400, np.full(400, 1 / 400), 4000)
    resampled = np.tile((times @ values / 400)[:, None], (1, seeds))
    ours = difference([values.mean()] * seeds, resampled)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", rng=3)
    assert ours.interval() == pytest.approx(tuple(theirs.confidence_interval), abs=0.02)
    assert ours.p_differs() == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.02)


@pytest.mark.parametrize(
    "errors",
    [(1, 0, 0), (0, 1, 0), (1, 8, 8)],
    ids=["seeds", "sentences", "all"],
)
def test_intervals_cover_what_they_claim(errors):
    """95 of 100; a percentile bootstrap that also draws seeds falls far short where seeds differ."""
    rng, trials = np.random.default_rng(5), 200
    covered = naive = rejected = 0
    for _ in range(trials):
        deltas, resampled = simulated(rng, *errors)
        estimate = difference(deltas, resampled)
        low, high = estimate.interval()
        covered += low <= 0 <= high
        rejected += estimate.p_differs() < 0.05
        drawn = np.take_along_axis(resampled, rng.integers(0, SEEDS, resampled.shape), 1).mean(1)
        low, high = np.quantile(drawn, (0.025, 0.975))
        naive += low <= 0 <= high
    # three standard errors of the simulation, and the bootstrap's own shortfall on 60 sentences
    assert covered / trials > 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials) - 0.01
    assert rejected / trials < 0.05 + 3 * math.sqrt(0.95 * 0.05 / trials) + 0.01
    if errors == (1, 0, 0):
        assert naive / trials < 0.8, "else drawing three seeds with replacement would do"


def test_equivalence_is_seldom_shown_of_a_difference_as_large_as_the_margin():
    rng, trials = np.random.default_rng(6), 200
    shown = {
        mean: sum(
            difference(*simulated(rng, 0.1, 0.5, 0.5, mean=mean)).p_equivalent(0.5) < 0.05
            for _ in range(trials)
        )
        for mean in (0.5, 0.0)
    }
    assert shown[0.5] / trials < 0.05 + 3 * math.sqrt(0.95 * 0.05 / trials)
    assert shown[0.0] / trials > 0.5, "and mostly of none"


def test_an_interval_is_never_narrower_than_over_sentences_alone():
    """Three seeds can agree by chance; here they do so better than the sentences of each allow."""
    rng = np.random.default_rng(7)
    _, resampled = simulated(rng, 0, 0, 3)
    resampled += 0.4 - resampled.mean(0)
    estimate = difference([0.39, 0.4, 0.41], resampled)
    low, high = estimate.interval()
    assert (low, high) == pytest.approx(np.quantile(resampled.mean(1), (0.025, 0.975)), abs=1e-9)
    assert estimate.p_differs() > stats.ttest_1samp([0.39, 0.4, 0.41], 0).pvalue


def test_resampled_scores_are_those_of_the_drawn_sentences():
    references = ["a man sees a car .", "two dogs sleep .", "she paints the red wall ."]
    lines = ["a man sees the car .", "two dogs sleep .", "he paints a red wall ."]
    metric = sacrebleu.metrics.BLEU()
    counts = metric._extract_corpus_statistics(lines, [references])
    scores = resampled_scores(
        np.array([counts, counts]), lambda row: metric._compute_score_from_stats(row).score, 40, seed=8
    )
    times = np.random.default_rng(8).multinomial(3, [1 / 3] * 3, 40)
    for row, score in zip(times, scores[0]):
        drawn = [i for i, count in enumerate(row) for _ in range(count)]
        expected = metric.corpus_score([lines[i] for i in drawn], [[references[i] for i in drawn]]).score
        assert score == pytest.approx(expected)
    assert (scores[0] == scores[1]).all(), "all translations get the same draws"
    assert len(set(scores[0])) > 5


def test_holm_against_its_definition():
    """The smallest p times the number of tests, the next times one less, never below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1, 1] and holm([0.2]) == [0.2] and holm([]) == []
    rng, wrong = np.random.default_rng(9), 0
    for _ in range(2000):
        wrong += min(holm(rng.uniform(size=8))) < 0.05
    assert wrong / 2000 == pytest.approx(1 - 0.99375**8, abs=0.015), "any false rejection, of eight tests"
