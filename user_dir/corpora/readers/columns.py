"""Tables of text (CSV, TSV): a pair in each row, its sides in two of the columns, as in Tatoeba's exports."""

from __future__ import annotations

import csv
from pathlib import Path

from ...errors import UserError
from . import Pairs, Source, of_pairs
from .lines import on_one_line, read_lines


@of_pairs("columns")
def read_columns(paths: list[Path], languages: tuple[str, str], source: Source) -> Pairs:
    """The stripped cells of a table; quotation marks are those of CSV unless tabs separate the columns.

    Blank rows are left out, and a line break within a cell becomes a space.

    Raises:
        UserError: a row has too few columns, or a quotation mark is not closed; with the line.
    """
    path, columns = paths[0], [source.columns[language] - 1 for language in languages]
    quoting = csv.QUOTE_NONE if source.separator == "\t" else csv.QUOTE_MINIMAL
    lines = (f"{line}\n" for line in read_lines(path))
    rows = csv.reader(lines, delimiter=source.separator, quoting=quoting, strict=True)
    try:
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) <= max(columns):
                raise UserError(f"{path}, line {rows.line_num}: it has {len(row)} columns only")
            left, right = (on_one_line(row[column]) for column in columns)
            yield left, right
    except csv.Error as error:
        raise UserError(f"{path}, line {rows.line_num}: {error}") from None
