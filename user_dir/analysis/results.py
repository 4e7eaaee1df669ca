"""Analyses of a split as files: statistics of heads, their importance, word alignments."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..corpora import Corpus
from ..corpora.readers.lines import count_lines
from ..errors import UserError
from ..io import write_json, write_text
from ..tables import csv_text
from .align_split import align_split, best
from .alignment import Gold
from .capture import row_sums
from .columns import definitions
from .importance import bleu_without_each_head, head_importance
from .maps import Maps
from .maps_writer import maps_writer
from .roles import Role, assign_roles, with_thresholds
from .split import Split, rounded
from .statistics import head_statistics
from .statistics_file import read_statistics
from .words import Pieces


def measured(
    split: Split,
    pieces: tuple[Pieces, Pieces],
    roles: dict[str, Role],
    facts: dict,
    maps: Path | None = None,
    map_sentences: int = 0,
    texts: Sequence[str] = (),
) -> dict:
    """The content of a file of statistics, which says ``facts``, too; writes ``maps`` if it is given.

    ``texts``: the source sentences of the split, of which ``maps`` has the first ``map_sentences``.
    """
    sums, write = row_sums(split.model), None
    with contextlib.ExitStack() as stack:
        if maps is not None:
            about = {"corpus": split.corpus.name, "subset": split.name}
            about |= {"alphas": split.model.alpha_values(), "row_sums": sums}
            writer = stack.enter_context(maps_writer(maps, **about))
            write = functools.partial(writer.write_batch, split.task, texts, map_sentences)
        samples = split.samples(in_order=maps is not None)
        statistics = head_statistics(split.model, samples, *pieces, split.padding, write)
    report = {**split.facts, **facts, "row_sums": sums, **statistics}
    report["roles"] = assign_roles(report["heads"], roles)
    report["measures"] = definitions(report)
    return rounded(report)


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
        output: the JSON file, whose content is returned.
        scheme: how pieces form words, one of :data:`~.words.SCHEMES`; None detects it.
        interrogatives: by language, words that replace our list.
        thresholds: ``ROLE=VALUE``, see :func:`~.roles.with_thresholds`.
        maps: also write attention maps to this file.
        map_sentences: the number of sentences in it, from the first.
    """
    roles, pieces, texts = with_thresholds(thresholds), split.pieces(scheme, interrogatives), []
    if maps is not None:
        source = split.corpus.text(split.subset, split.direction[0])
        texts = source.read_text(encoding="utf-8").split("\n")
    report = measured(split, pieces, roles, {"bpe": pieces[0].scheme}, maps, map_sentences, texts)
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
    statistics: Path, maps: Path | None, checkpoint: Path, corpus: Corpus, subset: str, shown: int
) -> bool:
    """Whether files are what a report needs that shows ``shown`` sentences, and no older than the checkpoint.

    It needs statistics of the whole split, and ``maps``, if any, of the first ``shown`` of its sentences.
    """
    files = [statistics] if maps is None else [statistics, maps]
    if not all(file.is_file() for file in files):
        return False
    if min(file.stat().st_mtime for file in files) < checkpoint.stat().st_mtime:
        return False
    try:
        found, kept = read_statistics(statistics), [Maps(file) for file in files[1:]]
    except UserError:  # by an earlier version
        return False
    of = [found, *map(vars, kept)]
    if any((each.get("corpus"), each.get("subset")) != (corpus.name, subset) for each in of):
        return False
    whole = count_lines(corpus.text(subset, corpus.languages[0]))
    return found.get("sentences") == whole and all(len(each) >= min(shown, whole) for each in kept)


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
        output: the JSON file, whose content is returned.
        figure: file to draw to; None for ``output`` with ``.svg``.
        points: number of points of each pruning curve.
        random_orders: number of random pruning orders.
        bleu_beam: beam size for also translating with each head masked in turn; None for no BLEU.

    Raises:
        UserError: the name of ``figure`` does not end in a known format, or a language model has no BLEU.
    """
    from . import plots  # matplotlib, which other results do not need
    from .plots_importance import importance_figure

    if bleu_beam is not None and not hasattr(split.model, "encoder"):
        raise UserError(
            f"--bleu: {split.checkpoint} is of a language model, which does not translate; omit it"
        )
    figure = plots.checked_format(figure or output.with_suffix(".svg"))
    statistics = head_statistics(split.model, split.samples("statistics"), *split.pieces(), split.padding)
    found = head_importance(split, statistics["heads"], points, random_orders)
    report = {**split.facts, "sentences": statistics["sentences"], **found}
    if bleu_beam is not None:
        report |= bleu_without_each_head(split, report["heads"], bleu_beam)
    report = rounded(report)
    plots.save(importance_figure(report), figure)
    write_json(output, report)
    return report


def write_alignment(
    split: Split, folder: Path, gold: Gold | None = None, query: str = "output", scheme: str | None = None
) -> dict:
    """Align the words of a split; writes a Pharaoh file for each candidate, and ``alignment.json``.

    See :func:`~.align_split.align_split`; ``scheme`` is of :data:`~.words.SCHEMES`. Returns the content of
    ``alignment.json``: with ``gold`` also ``best_head`` and ``best``, those of the least error rate.
    """
    samples = split.samples(in_order=True)
    found = align_split(split.model, samples, *split.pieces(scheme), folder, gold, query)
    report = rounded({**split.facts, **found})
    if gold is not None:
        report["best_head"], report["best"] = (best(report["candidates"], only) for only in (True, False))
    write_json(folder / "alignment.json", report)
    return report
