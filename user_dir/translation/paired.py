"""Comparison of each system with the first: intervals over seeds and sentences, and sacrebleu's paired tests.

A system is a recipe for training, seen through models of several seeds. Two questions are asked:

- Would the systems differ with other seeds and on other sentences? :mod:`.significance` answers it. With one
  seed only the sentences vary, and no verdict on the systems is given.
- Would these very models differ on other sentences? sacrebleu's paired bootstrap or approximate randomisation
  answers it, for all seeds together: the test set counts as many times as there are seeds, and a resample or
  a swap takes all translations of a sentence at once. Drawn one by one they would make the test set look
  larger than it is.

P-values are adjusted by Holm's method over all systems and metrics of a comparison. sacrebleu's bootstrap
counts resamples whose absolute difference exceeds its own mean, which makes it one-sided in effect: where it
is small, its p is about half that of randomisation.

Sources: Koehn 2004 (the bootstrap); Riezler and Maxwell 2005 (randomisation); sacrebleu.significance.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from ..errors import UserError
from ..tables import Column, plus_minus, significance, table
from .compared_systems import System
from .significance import LEVEL, difference, holm, resampled_scores

TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}


def compare(
    systems: Sequence[System],
    references: list[list[str]],
    metrics: dict[str, Metric],
    test: str = "bs",
    samples: int = 1000,
    margin: float | None = None,
    source_words: str | None = None,
) -> dict:
    """Score every system, and compare it with the first.

    Args:
        systems: the baseline and at least one more, each with as many translations (``seeds``).
        references: as sacrebleu takes them.
        metrics: by name, sacrebleu's.
        test: ``bs`` or ``ar``.
        samples: resamples of sacrebleu's bootstrap, or trials of the randomisation.
        margin: a difference too small to matter, in points of the metrics; chosen before the scores are seen.
            None tests no equivalence.
        source_words: if the sentences were selected by the length of their sources, which, for the legend.

    Returns:
        ``signatures`` by metric, and for each of ``systems`` and metric: the ``score`` of each seed in
        ``seeds``, their ``mean`` and standard deviation ``std`` (None of one). Of all but the baseline also

        - ``delta``: the difference of the means; ``interval``: its 95 % confidence interval;
        - ``p_seeds``: p-value of no difference over seeds and sentences;
        - with ``margin``, ``p_margin`` of a difference of that size or more, and the ``verdict``, see
          :func:`_verdict`; None with one seed;
        - ``p``: sacrebleu's, of these models; in ``seeds``, the ``delta`` of each seed.

        P-values that are adjusted end in ``_holm``. With sacrebleu's bootstrap every system has ``ci``, half
        the width of the interval that holds 95 % of the resampled scores.

    Raises:
        UserError: there is a single sentence, all of whose resamples are alike: every difference would look
            certain.
    """
    if len(references[0]) < 2:
        which = f", whose source has {source_words}" if source_words else ""
        raise UserError(f"there is 1 sentence{which}, which says nothing about others; compare on more")
    report = {
        "test": TESTS[test],
        "samples": samples,
        "margin": margin,
        "sentences": len(references[0]),
        "source_words": source_words,
        "seeds": len(systems[0].translations),
        "signatures": {},
        "systems": [{"name": each.name, "files": list(map(str, each.files))} for each in systems],
    }
    for name, metric in metrics.items():
        found, report["signatures"][name] = _by_metric(metric, systems, references, test, samples, margin)
        for row, scores in zip(report["systems"], found):
            row[name] = scores
    compared = [row[name] for row in report["systems"][1:] for name in metrics]
    for key in ("p", "p_seeds") if margin is None else ("p", "p_seeds", "p_margin"):
        for found, p in zip(compared, holm([found[key] for found in compared])):
            found[f"{key}_holm"] = p
    for found in compared if margin is not None else ():
        found["verdict"] = _verdict(found, margin) if report["seeds"] > 1 else None
    return report


def _by_metric(
    metric: Metric, systems: Sequence[System], references: list[list[str]], test: str, samples: int, margin
) -> tuple[list[dict], str]:
    """What :func:`compare` says of each system by one metric, but adjusted p-values; and the signature."""
    counts = [
        [metric._extract_corpus_statistics(lines, references) for lines in system.translations]
        for system in systems
    ]
    tested, signature = _test(metric, [np.sum(each, axis=0).tolist() for each in counts], test, samples)
    resampled = [
        resampled_scores(each, lambda row: metric._compute_score_from_stats(row).score) for each in counts
    ]
    rows: list[dict] = []
    for each, p_and_ci, drawn in zip(counts, tested, resampled):
        scores = [metric._aggregate_and_compute(seed).score for seed in each]
        std = statistics.stdev(scores) if len(scores) > 1 else None
        row = {"mean": statistics.fmean(scores), "std": std, **p_and_ci}
        row["seeds"] = [{"score": score} for score in scores]
        if rows:
            for seed, baseline in zip(row["seeds"], rows[0]["seeds"]):
                seed["delta"] = seed["score"] - baseline["score"]
            found = difference([seed["delta"] for seed in row["seeds"]], (drawn - resampled[0]).T)
            row |= {"delta": found.mean, "interval": found.interval(), "p_seeds": found.p_differs()}
            if margin is not None:
                row["p_margin"] = found.p_equivalent(margin)
        rows.append(row)
    return rows, signature


class _Given:
    """A metric of sacrebleu whose tests are handed statistics of sentences in the place of translations."""

    def __init__(self, metric: Metric):
        self._metric = metric

    def __getattr__(self, name: str):
        return getattr(self._metric, name)

    def _extract_corpus_statistics(self, hypotheses: list[list], references: None) -> list[list]:
        return hypotheses


def _test(metric, counts: Sequence[list[list]], test: str, samples: int) -> tuple[list[dict], str]:
    """``p`` and ``ci`` of each system, from the statistics of its sentences; and the signature."""
    systems = [(str(i), rows) for i, rows in enumerate(counts)]
    signatures, results = PairedTest(
        systems, {"metric": _Given(metric)}, references=None, test_type=test, n_samples=samples
    )()
    (name, signature), rows = next(iter(signatures.items())), []
    for i, result in enumerate(results[name]):
        row = {}
        if i:
            # Of systems that are one and the same no resample exceeds the difference, 0, which sacrebleu
            # would count as the strongest evidence.
            row["p"] = 1.0 if counts[i] == counts[0] else float(result.p_value)
        if result.ci is not None:
            row["ci"] = float(result.ci)
        rows.append(row)
    return rows, str(signature)


def _verdict(found: dict, margin: float) -> str:
    """``equivalent``, ``higher``, ``lower`` or ``inconclusive``; after Holm's adjustment, at 5 %.

    ``equivalent`` only where the interval lies inside the margin and the two one-sided tests reject every
    difference as large as it; ``inconclusive`` where neither this nor a difference is shown.
    """
    low, high = found["interval"]
    if found["p_margin_holm"] < 1 - LEVEL and -margin < low and high < margin:
        return "equivalent"
    if found["p_seeds_holm"] < 1 - LEVEL:
        return "higher" if found["delta"] > 0 else "lower"
    return "inconclusive"


def comparison_tables(report: dict) -> str:
    """The report of :func:`compare` as Markdown: a table of the systems by each metric, and a legend."""
    rows = [
        ([metric, system["name"]], system[metric])
        for metric in report["signatures"]
        for system in report["systems"]
    ]
    return f"{table(['metric', 'system'], rows, _columns(report))}\n\n{_legend(report)}"


def _columns(report: dict) -> list[Column]:
    """Score, difference, interval and p of a system by one metric; the baseline has only scores."""
    several = report["seeds"] > 1

    def compared(header: str, show: Callable[[dict], str]) -> Column:
        return Column(header, lambda found: show(found) if "delta" in found else "")

    columns = [
        Column("score", lambda found: plus_minus(found["mean"], found["std"], ".2f")),
        compared("Δ", lambda found: f"{found['delta']:+.2f}"),
    ]
    if several:
        columns.append(
            compared("by seed", lambda found: ", ".join(f"{seed['delta']:+.2f}" for seed in found["seeds"]))
        )
    columns.append(compared("95 % interval", lambda found: "{:+.2f} to {:+.2f}".format(*found["interval"])))
    if several:
        columns.append(compared("p", lambda found: significance(found["p_seeds_holm"])))
    if several and report["margin"] is not None:
        columns.append(compared(f"margin {report['margin']:g}", lambda found: found["verdict"]))
    return [*columns, compared("p, these models", lambda found: significance(found["p_holm"]))]


def _legend(report: dict) -> str:
    baseline, seeds = report["systems"][0]["name"], report["seeds"]
    which = f", whose source has {report['source_words']}" if report["source_words"] else ""
    lines = [f"{report['sentences']} sentences{which}. Δ: difference from {baseline}."]
    if seeds > 1:
        lines += [
            f"Score: mean ± standard deviation of {seeds} seeds. Interval and p: over seeds (Student's t, "
            f"{seeds - 1} degree{'s' if seeds > 2 else ''} of freedom) and sentences (bootstrap) together.",
        ]
        if report["margin"] is not None:
            lines.append(
                f"Equivalent: the interval lies inside ±{report['margin']:g}, and two one-sided tests reject "
                "larger differences; higher, lower: p below 0.05; inconclusive: neither is shown."
            )
    else:
        lines.append("Interval: over sentences alone (bootstrap). One seed says nothing about other models.")
    lines.append(
        f"P, these models: sacrebleu's {report['test']} over sentences. "
        f"All p: Holm's adjustment over the {(len(report['systems']) - 1) * len(report['signatures'])} rows."
    )
    lines += [f"{metric}: `{signature}`" for metric, signature in report["signatures"].items()]
    return "\n".join(f"- {line}" for line in lines)
