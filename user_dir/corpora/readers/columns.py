"""Tables whose columns are separated by tabs (TSV): a pair in each row, as in Tatoeba's exports."""

from __future__ import annotations

from pathlib import Path

from ...errors import UserError
from . import Pairs, Source, of_pairs
from .lines import read_lines


@of_pairs("columns")
def read_columns(paths: list[Path], languages: tuple[str, str], source: Source) -> Pairs:
    """Stripped cells of a table but its blank rows; raises UserError, with the line, if one is missing."""
    first, second = (source.columns[language] - 1 for language in languages)
    for number, line in enumerate(read_lines(paths[0]), start=1):
        if line.strip():
            cells = line.split("\t")
            if len(cells) <= max(first, second):
                raise UserError(f"{paths[0]}, line {number}: it has {len(cells)} columns only")
            yield cells[first].strip(), cells[second].strip()
