"""Comparison of each system with the first: intervals over seeds and sentences, and sacrebleu's paired tests.

A system is a recipe for training, seen through models of several seeds. Two questions are asked:

- Would the systems differ with other seeds and on other sentences? See :mod:`.significance`.
- Would these very models differ on other sentences? sacrebleu's paired bootstrap (Koehn 2004) or approximate
  randomisation (Riezler and Maxwell 2005) answers it: a resample or a swap always includes the translations
  of a sentence by all seeds.

P-values are adjusted by Holm's method over all systems and metrics of a comparison. Unlike in sacrebleu, ties
count, without which systems that differ in a few sentences would get tiny p-values. sacrebleu's bootstrap
tests the absolute differences of the resamples, minus their mean, which makes it one-sided in effect: a small
p is about half that of randomisation.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from ..corpora.readers import read_lines
from ..errors import UserError
from ..files import ROOT, markdown, plus_minus, read_json, significance
from .scoring import bleu_settings
from .significance import LEVEL, difference, holm, resampled_scores

TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}


@dataclass(frozen=True)
class System:
    """A system and its translations of the test set, one list per seed."""

    name: str
    files: list[Path]
    translations: list[list[str]]


@dataclass(frozen=True)
class References:
    """References in sacrebleu's form, and the settings that evaluate.py scored with."""

    references: list[list[str]]
    tokenize: str | None = None  # None: unknown
    lowercase: bool = False
    language: str = ""  # of the translations; empty: unknown


def read_systems(
    named: list[tuple[str, list[Path]]], references: list[Path] | None = None
) -> tuple[list[System], References]:
    """Read the files of the systems in ``named``, one per seed, and the test set.

    A file is an evaluation (JSON written by evaluate.py, with the translations next to it) or plain text with
    one translation per line. ``references`` are plain text; None for those of the evaluations. Raises
    UserError if a file is missing, or the systems cannot be compared.
    """
    if len(named) < 2 or len({len(files) for _, files in named}) > 1:
        raise UserError("give --system twice or more, with as many files each, in the order of the seeds")
    plain = References([list(read_lines(file)) for file in references or []])
    read = {file: _read(file, plain) for _, files in named for file in files}
    test_set = next((test_set for _, test_set in read.values() if test_set is not plain), plain)
    if not test_set.references:
        raise UserError("plain text translations require --ref FILE")
    for file, (lines, of_file) in read.items():
        if of_file not in (plain, test_set):
            raise UserError(f"{file} differs from the others in references, language or settings of BLEU")
        counts = [len(reference) for reference in test_set.references]
        if set(counts) != {len(lines)}:
            wanted = " and ".join(map(str, counts))
            raise UserError(f"{file} has {len(lines)} lines, but the references have {wanted}")
    return [System(name, files, [read[file][0] for file in files]) for name, files in named], test_set


def _read(file: Path, plain: References) -> tuple[list[str], References]:
    """The translations of a file and its test set; ``plain`` references, if any, replace an evaluation's."""
    if file.suffix != ".json":
        return list(read_lines(file)), plain
    evaluation = read_json(file, "the evaluation")
    try:
        language, name = evaluation["direction"].partition("-")[2], evaluation["references"]
        translations = file.parent / f"{evaluation['test_set']}.{language}"
        settings = bleu_settings(evaluation["bleu_signature"])
    except (KeyError, TypeError):
        raise UserError(f"{file} is not an evaluation written by evaluate.py") from None
    if evaluation.get("left_out_lines"):
        raise UserError(f"{file} leaves out sentences (--skip-long), which would count as empty here")
    # In records, paths are relative to the repository.
    own = Path(name) if Path(name).is_file() else ROOT / name
    references = plain.references or [list(read_lines(own))]
    return list(read_lines(translations)), References(references, *settings, language)


def compare(
    systems: Sequence[System],
    references: list[list[str]],
    metrics: dict[str, Metric],
    test: str = "bs",
    samples: int = 1000,
    margin: float | None = None,
) -> dict:
    """Score every system, and compare it with the first, the baseline.

    Args:
        systems: all with the same number of seeds.
        references, metrics: sacrebleu's.
        test, samples: ``bs`` or ``ar``, with so many resamples or trials.
        margin: a difference too small to matter, in points of the metrics; None tests no equivalence.

    Returns:
        ``signatures`` by metric, and for each of ``systems`` and metric: the ``score`` of each seed in
        ``seeds``, their ``mean`` and standard deviation ``std`` (None with one seed). All but the first have

        - ``delta``: the difference of the means; ``interval``: its 95 % confidence interval;
        - ``p_seeds``: p-value of no difference over seeds and sentences;
        - with ``margin``, ``p_margin`` of a difference of that size or more, and the ``verdict``, see
          :func:`_verdict`; None with one seed;
        - ``p``: sacrebleu's p-value for these models; in ``seeds``, the ``delta`` of each seed.

        P-values that are adjusted end in ``_holm``.

    Raises:
        UserError: there is a single sentence, of which all resamples are alike.
    """
    if len(references[0]) < 2:
        raise UserError("a single sentence says nothing about others; compare on more")
    report = {
        "test": TESTS[test],
        "samples": samples,
        "margin": margin,
        "sentences": len(references[0]),
        "seeds": len(systems[0].translations),
        "signatures": {},
        "systems": [{"name": system.name, "files": list(map(str, system.files))} for system in systems],
    }
    for name, metric in metrics.items():
        rows, report["signatures"][name] = _by_metric(metric, systems, references, test, samples, margin)
        for row, scores in zip(report["systems"], rows):
            row[name] = scores
    compared = [row[name] for row in report["systems"][1:] for name in metrics]
    for key in ("p", "p_seeds") if margin is None else ("p", "p_seeds", "p_margin"):
        for scores, p in zip(compared, holm([scores[key] for scores in compared])):
            scores[f"{key}_holm"] = p
    for scores in compared if margin is not None else ():
        scores["verdict"] = _verdict(scores, margin) if report["seeds"] > 1 else None
    return report


def _by_metric(
    metric: Metric, systems: Sequence[System], references: list[list[str]], test: str, samples: int, margin
) -> tuple[list[dict], str]:
    """The results of :func:`compare` by one metric, without adjusted p-values; and the metric's signature."""
    counts = [
        np.array([metric._extract_corpus_statistics(lines, references) for lines in system.translations])
        for system in systems
    ]  # of each: (seeds, sentences, statistics)
    sums = [(str(number), seeds.sum(0).tolist()) for number, seeds in enumerate(counts)]
    counted = copy.copy(metric)  # takes statistics of sentences instead of translations
    counted._extract_corpus_statistics = lambda counts, references: counts
    paired = PairedTest(sums, {"metric": counted}, None, test_type=test, n_samples=samples)
    with mock.patch("sacrebleu.significance._compute_p_value", _p_value):
        signatures, results = paired()
    ((name, signature),) = signatures.items()
    resampled = [
        resampled_scores(seeds, lambda row: metric._compute_score_from_stats(row).score) for seeds in counts
    ]
    rows: list[dict] = []
    for seeds, tested, drawn in zip(counts, results[name], resampled):
        scores = [metric._aggregate_and_compute(seed.tolist()).score for seed in seeds]
        std = statistics.stdev(scores) if len(scores) > 1 else None
        row = {"mean": statistics.fmean(scores), "std": std, "seeds": [{"score": score} for score in scores]}
        if rows:
            for seed, baseline in zip(row["seeds"], rows[0]["seeds"]):
                seed["delta"] = seed["score"] - baseline["score"]
            delta = difference([seed["delta"] for seed in row["seeds"]], (drawn - resampled[0]).T)
            row |= {"delta": delta.mean, "interval": delta.interval(), "p_seeds": delta.p_differs()}
            row["p"] = float(tested.p_value)
            if margin is not None:
                row["p_margin"] = delta.p_equivalent(margin)
        rows.append(row)
    return rows, str(signature)


def _p_value(resampled: np.ndarray, difference: float) -> float:
    """The share of differences, the observed one among them, that are at least as large as the observed."""
    return (np.sum(resampled >= difference - 1e-9) + 1) / (len(resampled) + 1)


def _verdict(scores: dict, margin: float) -> str:
    """``equivalent``, ``higher``, ``lower`` or ``inconclusive``; after Holm's adjustment, at 5 %."""
    low, high = scores["interval"]
    if scores["p_margin_holm"] < 1 - LEVEL and -margin < low and high < margin:
        return "equivalent"
    if scores["p_seeds_holm"] < 1 - LEVEL:
        return "higher" if scores["delta"] > 0 else "lower"
    return "inconclusive"


def comparison_tables(report: dict) -> str:
    """The report of :func:`compare` as Markdown: a table of the systems by each metric, and a legend."""
    rows = [
        {"metric": metric, "system": system["name"], **_cells(system[metric], report)}
        for metric in report["signatures"]
        for system in report["systems"]
    ]
    headers = rows[1].keys()  # the first row is of the baseline, which has only scores
    table = markdown([[row.get(key, "") for key in headers] for row in rows], headers)
    return f"{table}\n\n{_legend(report)}"


def _cells(scores: dict, report: dict) -> dict[str, str]:
    """Score, difference, interval and p of a system by one metric; by the header of their columns."""
    several = report["seeds"] > 1
    cells = {"score": plus_minus(scores["mean"], scores["std"], ".2f")}
    if "delta" in scores:
        cells |= {
            "Δ": f"{scores['delta']:+.2f}",
            "by seed": several and ", ".join(f"{seed['delta']:+.2f}" for seed in scores["seeds"]),
            "95 % interval": "{:+.2f} to {:+.2f}".format(*scores["interval"]),
            "p": several and significance(scores["p_seeds_holm"]),
            f"margin {report['margin'] or 0:g}": scores.get("verdict"),
            "p, these models": significance(scores["p_holm"]),
        }
    return {header: cell for header, cell in cells.items() if cell}


def _legend(report: dict) -> str:
    baseline, seeds, margin = report["systems"][0]["name"], report["seeds"], report["margin"]
    lines = [f"{report['sentences']} sentences. Δ: difference from {baseline}."]
    if seeds == 1:
        lines.append("Interval: over sentences alone (bootstrap). One seed says nothing about other models.")
    else:
        lines.append(
            f"Score: mean ± standard deviation of {seeds} seeds. Interval and p: over seeds (Student's t, "
            f"{seeds - 1} degree{'s' if seeds > 2 else ''} of freedom) and sentences (bootstrap) together."
        )
    if seeds > 1 and margin is not None:
        lines.append(
            f"Equivalent: the interval lies inside ±{margin:g}, and two one-sided tests reject "
            "larger differences; higher, lower: p below 0.05; inconclusive: neither is shown."
        )
    lines.append(
        f"P, these models: sacrebleu's {report['test']} over sentences. "
        f"All p: Holm's adjustment over the {(len(report['systems']) - 1) * len(report['signatures'])} rows."
    )
    lines += [f"{metric}: `{signature}`" for metric, signature in report["signatures"].items()]
    return "\n".join(f"- {line}" for line in lines)
