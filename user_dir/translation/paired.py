"""Paired tests of each system against the first, by sacrebleu: the bootstrap, or approximate randomisation.

A system is a way to train, seen through models of several seeds. What is tested:

- seed by seed: each model against the baseline's model of the same seed, its place in the list;
- all seeds together: the test set as many times over as there are seeds, each time translated by the models
  of one seed. A resample that draws a sentence draws it with all its translations, and randomisation swaps
  them all: they are of one sentence, and drawn one by one they would make a test set look larger than it is.

Both ask whether these models would differ on other sentences. How much other seeds would change is what the
spread over seeds shows; no test here answers it. p is not corrected for several comparisons. sacrebleu's
bootstrap takes for chance what a resample's absolute difference exceeds its own mean by, which makes it
one-sided in effect: its p is about half of that of randomisation where either is small.

Sources: Koehn 2004 (the bootstrap); Riezler and Maxwell 2005 (randomisation); sacrebleu.significance.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import sacrebleu
from sacrebleu.significance import PairedTest

from ..tables import Column, plus_minus, significance, table
from .systems import System

TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}


class _Given:
    """A metric of sacrebleu whose tests are handed statistics of sentences in the place of translations."""

    def __init__(self, metric: sacrebleu.metrics.base.Metric):
        self._metric = metric

    def __getattr__(self, name: str):
        return getattr(self._metric, name)

    def _extract_corpus_statistics(self, hypotheses: list[list], references: None) -> list[list]:
        return hypotheses


def compare(
    systems: Sequence[System],
    references: list[list[str]],
    metrics: dict[str, sacrebleu.metrics.base.Metric],
    test: str = "bs",
    samples: int = 1000,
) -> dict:
    """Score every system, and test it against the first.

    Args:
        systems: the baseline and at least one more, each with as many translations (``seeds``).
        references: as sacrebleu takes them.
        metrics: by name, sacrebleu's.
        test: ``bs`` or ``ar``.
        samples: resamples of the bootstrap, or trials of the randomisation.

    Returns:
        ``signatures`` by metric, and for each of ``systems`` and metric: the ``score`` of each seed, their
        ``mean`` and standard deviation ``std`` (None of one), the difference of the means ``delta``, ``p`` of
        all seeds together, and ``seeds``, the same seed by seed. With the bootstrap also ``ci``, half the
        width of the interval that holds 95 % of the resampled scores. The baseline has no ``delta`` or ``p``.
    """
    report = {
        "test": TESTS[test],
        "samples": samples,
        "sentences": len(references[0]),
        "seeds": len(systems[0].translations),
        "signatures": {},
        "systems": [{"name": each.name, "files": list(map(str, each.files))} for each in systems],
    }
    for name, metric in metrics.items():
        counts = [
            [metric._extract_corpus_statistics(lines, references) for lines in system.translations]
            for system in systems
        ]
        together = [np.sum(each, axis=0).tolist() for each in counts]
        pooled, signature = _test(metric, together, test, samples)
        by_seed = [pooled]
        if report["seeds"] > 1:
            by_seed = [_test(metric, models, test, samples)[0] for models in zip(*counts)]
        report["signatures"][name] = signature
        baseline = None
        for i, row in enumerate(report["systems"]):
            seeds = [models[i] for models in by_seed]
            scores = [seed["score"] for seed in seeds]
            row[name] = {
                "mean": statistics.fmean(scores),
                "std": statistics.stdev(scores) if len(scores) > 1 else None,
                **{key: value for key, value in pooled[i].items() if key != "score"},
                "seeds": seeds,
            }
            if baseline is None:
                baseline = row[name]
                continue
            row[name]["delta"] = row[name]["mean"] - baseline["mean"]
            for seed, other in zip(seeds, baseline["seeds"]):
                seed["delta"] = seed["score"] - other["score"]
    return report


def _test(metric, counts: Sequence[list[list]], test: str, samples: int) -> tuple[list[dict], str]:
    """``score``, ``p`` and ``ci`` of each system, from the statistics of its sentences; and the signature."""
    systems = [(str(i), rows) for i, rows in enumerate(counts)]
    signatures, results = PairedTest(
        systems, {"metric": _Given(metric)}, references=None, test_type=test, n_samples=samples
    )()
    (name, signature), rows = next(iter(signatures.items())), []
    for i, result in enumerate(results[name]):
        row = {"score": float(result.score)}
        if i:
            # Of systems that are one and the same no resample exceeds the difference, 0, which sacrebleu
            # would count as the strongest evidence.
            row["p"] = 1.0 if counts[i] == counts[0] else float(result.p_value)
        if result.ci is not None:
            row["ci"] = float(result.ci)
        rows.append(row)
    return rows, str(signature)


def comparison_tables(report: dict) -> str:
    """The report of :func:`compare` as Markdown: systems, seed by seed if there are several, and a legend."""
    metrics, systems = list(report["signatures"]), report["systems"]
    rows = [([system["name"]], {metric: system[metric] for metric in metrics}) for system in systems]
    tables = [table(["system"], rows, _columns(metrics))]
    if report["seeds"] > 1:
        rows = [
            ([system["name"], i + 1], {metric: system[metric]["seeds"][i] for metric in metrics})
            for i in range(report["seeds"])
            for system in systems
        ]
        tables.append(table(["system", "seed"], rows, _columns(metrics)))
    return "\n\n".join([*tables, _legend(report)])


def _columns(metrics: list[str]) -> list[Column]:
    """Score, difference and p by metric, of a system or of one of its seeds; the baseline has only scores."""

    def score(found: dict) -> str:
        return plus_minus(found.get("mean", found.get("score")), found.get("std"), ".2f")

    def delta(found: dict) -> str:
        return f"{found['delta']:+.2f}" if "p" in found else ""

    def p_value(found: dict) -> str:
        return significance(found["p"]) if "p" in found else ""

    return [
        Column(header, lambda figures, metric=metric, show=show: show(figures[metric]))
        for metric in metrics
        for header, show in ((metric, score), ("Δ", delta), ("p", p_value))
    ]


def _legend(report: dict) -> str:
    baseline = report["systems"][0]["name"]
    lines = [
        f"{report['sentences']} sentences. Δ and p: against {baseline}; p of sacrebleu's {report['test']}, "
        "not corrected for several comparisons."
    ]
    if report["seeds"] > 1:
        lines.append(
            f"Mean ± standard deviation of {report['seeds']} seeds; p of all seeds together, a sentence "
            "drawn with all its translations; below, each seed against the same seed."
        )
    lines += [f"{metric}: `{signature}`" for metric, signature in report["signatures"].items()]
    return "\n".join(f"- {line}" for line in lines)
