"""Tables of text: a pair in each line, its sides in two of the columns, as in Tatoeba's exports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...errors import UserError
from .left_out import BLANK
from .lines import read_lines


class Table(NamedTuple):
    """The numbers, from 1, of the columns of source and target, and what is between columns."""

    columns: tuple[int, int]
    separator: str = "\t"


def read_columns(path: Path, table: Table, left_out: Counter) -> Iterator[tuple[str, str]]:
    """The pairs of a table, in which quotation marks have no meaning; UserError for too few columns."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            left_out[BLANK] += 1
            continue
        cells = line.split(table.separator)
        if len(cells) < max(table.columns):
            raise UserError(
                f"{path}, line {number}: it has {len(cells)} columns, separated by {table.separator!r}, but "
                f"{max(table.columns)} are needed; mend it, or columns and separator in corpus.yaml"
            )
        source, target = table.columns
        yield cells[source - 1].strip(), cells[target - 1].strip()
