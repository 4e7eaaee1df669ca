"""Tables in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tabulate import tabulate


def markdown(lines: list[list], headers: list[str]) -> str:
    """A table of cells that are texts already."""
    return tabulate(lines, headers=headers, tablefmt="github", disable_numparse=True)


def spread(values: Iterable[float | None], form: str) -> str:
    """The mean, with ± the standard deviation where values differ; nothing where one is missing."""
    values = list(values)
    if any(value is None for value in values):
        return ""
    mean = format(statistics.fmean(values), form)
    if len(set(values)) == 1:
        return mean
    return f"{mean} ± {format(statistics.stdev(values), form.removeprefix('+'))}"


def significance(p: float) -> str:
    """A p to three places, never as 0, which it is not."""
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"
