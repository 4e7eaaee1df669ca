"""Tables of text (TSV, CSV): a pair in each row, its sides in two of the columns, as in Tatoeba's exports."""

from __future__ import annotations

import csv
from pathlib import Path

from ...errors import UserError
from . import Pairs, Source, of_pairs
from .lines import on_one_line, read_lines


@of_pairs("columns")
def read_columns(paths: list[Path], languages: tuple[str, str], source: Source) -> Pairs:
    """Two cells of every row that is not blank; quoting is CSV's, or none if tabs separate the columns.

    Raises:
        UserError: a row has too few columns or not as many as the first, as when text contains separators,
            or a quotation mark is not closed; the message names the line where the row begins.
    """
    first, second = (source.columns[language] - 1 for language in languages)
    begins, width = 1, None
    lines = (f"{line}\n" for line in read_lines(paths[0]))
    quoting = csv.QUOTE_NONE if source.separator == "\t" else csv.QUOTE_MINIMAL
    rows = csv.reader(lines, delimiter=source.separator, quoting=quoting, strict=True)
    try:
        for row in rows:
            if any(map(str.strip, row)):
                width = width or len(row)
                if len(row) != width:
                    raise csv.Error(f"it has {len(row)} columns, but the first row has {width}")
                yield on_one_line(row[first]), on_one_line(row[second])
            begins = rows.line_num + 1
    except (csv.Error, IndexError) as error:
        problem = f"it has {len(row)} columns only" if isinstance(error, IndexError) else error
        raise UserError(f"{paths[0]}, line {begins}: {problem}") from None
