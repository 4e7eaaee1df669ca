"""Tables of figures as Markdown or CSV, and the formatting of their cells."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from tabulate import tabulate

from .io import write_json, write_text


@dataclass(frozen=True)
class Column:
    """A column: its header, and the function that formats its cell from a row's figures."""

    header: str
    cell: Callable[[Any], str]


def table(labels: Sequence[str], rows: Iterable[tuple[Sequence, Any]], columns: Sequence[Column]) -> str:
    """A Markdown table of ``columns``, preceded by cells that label the row.

    Args:
        labels: headers of the labels.
        rows: the labels and the figures of each row.
        columns: in display order.
    """
    cells = [[*names, *(column.cell(figures) for column in columns)] for names, figures in rows]
    return markdown(cells, [*labels, *(column.header for column in columns)])


def markdown(rows: Iterable[Sequence], headers: Sequence[str]) -> str:
    """A Markdown table of cells that are shown verbatim."""
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)


def csv_text(rows: Iterable[Sequence], headers: Sequence[str]) -> str:
    """The same cells as CSV; None becomes an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([headers, *rows])
    return text.getvalue()


def seed_mean(header: str, value: str | Callable[[dict], float | None], form: str) -> Column:
    """Mean ± standard deviation over seeds; a row's figures are a list of objects, one per seed.

    ``value`` is a key of these objects, or a function of an object.
    """
    get = itemgetter(value) if isinstance(value, str) else value
    return Column(header, lambda seeds: mean_and_deviation(map(get, seeds), form))


def seed_list(header: str, key: str, form: str = "") -> Column:
    """The value of every seed; a row's figures are a list of objects, one per seed."""
    return Column(header, lambda seeds: ", ".join(format(seed[key], form) for seed in seeds))


def mean_and_deviation(values: Iterable[float | None], form: str) -> str:
    """The mean, with ± the standard deviation if values differ; empty if a value is missing."""
    values = list(values)
    if any(value is None for value in values):
        return ""
    deviation = statistics.stdev(values) if len(set(values)) > 1 else None
    return plus_minus(statistics.fmean(values), deviation, form)


def plus_minus(mean: float, deviation: float | None, form: str) -> str:
    """``mean ± deviation``, or the mean alone if the deviation is None; only the mean is signed."""
    if deviation is None:
        return format(mean, form)
    return f"{format(mean, form)} ± {format(deviation, form.removeprefix('+'))}"


def significance(p: float) -> str:
    """A p-value with three decimals, but never 0."""
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def mebibytes(count: int | None, form: str) -> str:
    """A number of bytes in MiB; empty if it was not measured."""
    return "" if count is None else format(count / 2**20, form)


def table_files(path: Path | None) -> tuple[Path, ...]:
    """The files that :func:`write_tables` writes: Markdown, and JSON; none if ``path`` is None."""
    return () if path is None else (path, path.with_suffix(".json"))


def write_tables(path: Path | None, tables: str, figures: dict) -> None:
    """Write Markdown to ``path`` and all figures as JSON next to it; do nothing if ``path`` is None."""
    if path is not None:
        page, data = table_files(path)
        write_text(page, tables + "\n")
        write_json(data, figures)
