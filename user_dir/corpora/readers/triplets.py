"""Parallel files whose lines at the same position form a post-editing triplet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from ...errors import UserError
from .lines import read_lines

SEPARATOR, MASK = "[SEP]", "<mask>"
BETWEEN = f" {SEPARATOR} "
"""What stands between source and translation in a source line."""


def read_triplets(*paths: Path) -> Iterator[tuple[str, ...]]:
    """The stripped lines of ``src``, ``mt`` and ``pe``, or of only some of them.

    Raises:
        UserError: a line is empty or contains a reserved symbol; the files have unequal numbers of lines. The
            message names file and line.
    """
    for number, lines in enumerate(zip_longest(*map(read_lines, paths)), start=1):
        for path, line in zip(paths, lines):
            if line is None:
                longer = next(other for other, found in zip(paths, lines) if found is not None)
                raise UserError(
                    f"{path} has {number - 1:,} lines, but {longer} has a line {number}: "
                    "they are not parallel; check the files"
                )
            require_plain(line, f"{path}, line {number}")
        yield tuple(line.strip() for line in lines)


def require_plain(text: str, where: str) -> None:
    """Raise UserError, beginning with ``where``, if text is empty or contains a reserved symbol."""
    if not text.strip():
        raise UserError(f"{where} is empty; remove the triplet from all files")
    for symbol in (SEPARATOR, MASK):
        if symbol in text:
            raise UserError(f"{where} contains {symbol}, which is reserved; remove it or replace it")


def joined(src: str, mt: str) -> str:
    """The source line of a triplet."""
    return f"{src.strip()}{BETWEEN}{mt.strip()}"


def source_line(text: str, number: int, name: str) -> str:
    """``src`` and ``mt`` separated by a tab, as a source line; empty for an empty text.

    Raises:
        UserError: there is not exactly one tab, or a side is empty or contains a reserved symbol; with line
            ``number`` of ``name``.
    """
    if not text.strip():
        return ""
    where = f"{name}, line {number}" if name else f"line {number}"
    sides, remedy = text.split("\t"), "write the source sentence, a tab, and its translation"
    if len(sides) != 2:
        raise UserError(f"{where} has {len(sides) - 1} tabs; {remedy}")
    for side, what in zip(sides, ("source sentence", "translation")):
        if not side.strip():
            raise UserError(f"{where} has no {what}; {remedy}")
        require_plain(side, where)
    return joined(*sides)
