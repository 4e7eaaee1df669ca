"""Analyses of a split as files: statistics of heads, their importance, word alignments."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import UserError
from ..io import write_json, write_text
from ..tables import csv_text
from ..translation.scored_split import ScoredSplit
from . import plots
from .align_split import align_split, best
from .alignment import Gold
from .bleu_importance import bleu_without_each_head
from .capture import row_sums
from .columns import definitions
from .dump import MapsDump
from .importance import head_importance
from .maps import Maps
from .maps_writer import maps_writer
from .plots_importance import importance_figure
from .roles import assign_roles, with_thresholds
from .split import Split, rounded
from .statistics import head_statistics
from .statistics_file import read_statistics


def write_statistics(
    split: Split,
    output: Path,
    *,
    scheme: str | None = None,
    interrogatives: Mapping[str, frozenset[str]] | None = None,
    thresholds: Sequence[str] = (),
    maps: Path | None = None,
    map_sentences: int = 50,
) -> dict:
    """Write every statistic of every head as JSON, and the rows of the heads as CSV beside it.

    Args:
        split: a model over a split, with teacher forcing.
        output: the JSON file.
        scheme: how pieces form words, one of :data:`~.words.SCHEMES`; None detects it.
        interrogatives: by language, words that replace our list.
        thresholds: ``ROLE=VALUE``, see :func:`~.roles.with_thresholds`.
        maps: also write attention maps to this file.
        map_sentences: the number of sentences in it, from the first.

    Returns:
        The content of the JSON file.
    """
    roles = with_thresholds(thresholds)
    pieces = split.pieces(scheme, interrogatives)
    with contextlib.ExitStack() as stack:
        dump = None
        if maps is not None:
            source = split.corpus.text(split.subset, split.direction[0])
            texts = source.read_text(encoding="utf-8").split("\n")
            alphas = split.model.alpha_values()
            named = {"corpus": split.corpus.name, "subset": split.name}
            writer = maps_writer(maps, **named, alphas=alphas, row_sums=row_sums(split.model))
            dump = MapsDump(stack.enter_context(writer), split.task, map_sentences, texts)
        samples = split.samples(in_order=maps is not None)
        statistics = head_statistics(split.model, samples, *pieces, split.padding, dump)
    sums = row_sums(split.model)
    report = {**split.facts, "bpe": pieces[0].scheme, "row_sums": sums, **statistics}
    report["roles"] = assign_roles(report["heads"], roles)
    report["measures"] = definitions(report)
    report = rounded(report)
    write_json(output, report)
    write_text(output.with_suffix(".csv"), heads_as_csv(report["heads"]))
    return report


def heads_as_csv(heads: list[dict]) -> str:
    """The rows of the heads as CSV, without lists; roles are joined by semicolons."""
    rows = [
        {name: value for name, value in row.items() if not isinstance(value, list)}
        | {"roles": "; ".join(row["roles"])}
        for row in heads
    ]
    return csv_text((row.values() for row in rows), list(rows[0]))


def statistics_are_current(
    statistics: Path, maps: Path | None, checkpoint: Path, corpus: str, subset: str
) -> bool:
    """Whether statistics (and ``maps``) exist, are no older than the checkpoint, and are of this split."""
    files = [statistics] if maps is None else [statistics, maps]
    if not all(file.is_file() for file in files):
        return False
    if min(file.stat().st_mtime for file in files) < checkpoint.stat().st_mtime:
        return False
    try:
        found = read_statistics(statistics)
        splits = [(found.get("corpus"), found.get("subset"))]
        if maps is not None:
            with_maps = Maps(maps)
            splits.append((with_maps.corpus, with_maps.subset))
    except UserError:  # by an earlier version
        return False
    return set(splits) == {(corpus, subset)}


def write_importance(
    split: Split,
    output: Path,
    figure: Path | None = None,
    *,
    points: int = 12,
    random_orders: int = 5,
    bleu_beam: int | None = None,
) -> dict:
    """Write the importance of each head as JSON, and draw the cost of pruning.

    Args:
        split: a model over a split, with teacher forcing.
        output: the JSON file.
        figure: file to draw to; None for ``output`` with ``.svg``.
        points: number of points of each pruning curve.
        random_orders: number of random pruning orders.
        bleu_beam: beam size for also translating with each head masked in turn; None for no BLEU.

    Returns:
        The content of the JSON file.

    Raises:
        UserError: the name of ``figure`` does not end in a known format.
    """
    figure = figure or output.with_suffix(".svg")
    if figure.suffix.lstrip(".") not in plots.FORMATS:
        raise UserError(f"--figure {figure} must end in .{', .'.join(plots.FORMATS)}")
    statistics = head_statistics(split.model, split.samples("statistics"), *split.pieces(), split.padding)
    found = head_importance(
        split.model, split.samples, split.padding, statistics["heads"], points, random_orders
    )
    report = {**split.facts, "sentences": statistics["sentences"], **found}
    if bleu_beam is not None:
        report |= bleu_without_each_head(
            split.model,
            split.task,
            ScoredSplit(split.corpus, split.subset, split.direction),
            report["heads"],
            beam=bleu_beam,
            max_tokens=split.max_tokens,
            sentences=split.sentences,
        )
    report = rounded(report)
    plots.save(importance_figure(report), figure)
    write_json(output, report)
    return report


def write_alignment(
    split: Split, folder: Path, gold: Gold | None = None, query: str = "output", scheme: str | None = None
) -> dict:
    """Align the words of a split; writes a Pharaoh file for each candidate, and ``alignment.json``.

    Args:
        split: a model over a split, with teacher forcing.
        folder: the folder to write to.
        gold: gold links to score against.
        query: of :data:`~.align_split.QUERIES`.
        scheme: how pieces form words, one of :data:`~.words.SCHEMES`; None detects it.

    Returns:
        The content of ``alignment.json``: with ``gold`` also ``best_head`` and ``best``, those of the least
        error rate.
    """
    samples = split.samples(in_order=True)
    found = align_split(split.model, samples, *split.pieces(scheme), folder, gold, query)
    report = rounded({**split.facts, **found})
    if gold is not None:
        report["best_head"], report["best"] = (best(report["candidates"], only) for only in (True, False))
    write_json(folder / "alignment.json", report)
    return report
