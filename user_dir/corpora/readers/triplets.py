"""Post-editing triplets: the lines of ``src``, ``mt`` and ``pe`` at the same position.

They are a translation corpus whose source line is ``src [SEP] mt`` and whose target line is the corrected
translation, so that every fairseq command works on them (Correia and Martins 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from ...errors import UserError
from . import Pairs, Source, of_pairs
from .lines import read_lines

SEPARATOR, MASK = "[SEP]", "<mask>"
BETWEEN = f" {SEPARATOR} "
"""What stands between source and translation in a source line."""


@of_pairs("triplets", one_file=False)
def read_triplets(paths: list[Path], languages: tuple[str, str], source: Source) -> Pairs:
    """Source line and correction of each triplet.

    Raises:
        UserError: a line is empty, missing or has a reserved symbol; the message names file and line.
    """
    for src, mt, pe in _rows(paths):
        yield joined(src, mt), pe


def read_joined(*paths: Path) -> Iterator[str]:
    """The source lines of ``src`` and ``mt`` (errors as above), or the lines of one file but blank ones."""
    if len(paths) == 2:
        return (joined(*row) for row in _rows(paths))
    return (line.strip() for line in read_lines(paths[0]) if line.strip())


def _rows(paths: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    for number, row in enumerate(zip_longest(*map(read_lines, paths), fillvalue=""), start=1):
        for path, line in zip(paths, row):
            require_plain(line, f"{path}, line {number}")
        yield tuple(map(str.strip, row))


def require_plain(text: str, where: str) -> None:
    """Raise UserError, beginning with ``where``, if text is empty or contains a reserved symbol."""
    symbol = next((symbol for symbol in (SEPARATOR, MASK) if symbol in text), None)
    if symbol or not text.strip():
        raise UserError(f"{where} {f'contains {symbol}, which is reserved' if symbol else 'is empty'}")


def joined(src: str, mt: str) -> str:
    """The source line of a triplet."""
    return f"{src.strip()}{BETWEEN}{mt.strip()}"


def source_line(text: str, number: int, name: str) -> str:
    """The source line of a text ``src TAB mt``; empty for an empty text.

    Raises UserError, with line ``number`` of the file ``name``, unless the text has these two parts.
    """
    if not text.strip():
        return ""
    where, sides = f"{name}, line {number}" if name else f"line {number}", text.split("\t")
    if len(sides) != 2:
        raise UserError(f"{where} must be the source sentence, a tab, and its translation")
    for side in sides:
        require_plain(side, where)
    return joined(*sides)
