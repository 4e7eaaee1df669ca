"""Two parallel files: sentences at the same position form a pair."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from ...errors import UserError
from .lines import read_lines
from .segments import read_segments
from .ted_tags import read_ted_tags
from .tmx import read_tmx

logger = logging.getLogger(__name__)

FORMATS = ("lines", "ted_tags", "segments", "tmx")
ENDINGS = {"sgm": "segments", "sgml": "segments", "xml": "segments", "tmx": "tmx"}


def format_of(name: str) -> str:
    """The format implied by a file name's extension, ignoring ``.gz``; ``lines`` by default."""
    return ENDINGS.get(name.removesuffix(".gz").rsplit(".", 1)[-1], "lines")


def read_pairs(
    source: Path, target: Path, languages: tuple[str, str], form: str
) -> Iterator[tuple[str, str]]:
    """The pairs of a source and a target file in one of ``FORMATS``; for ``tmx`` both are the same file.

    Raises UserError at the end if the files do not match: with both counts if their lengths differ, with the
    position if parallel segments have different ids.
    """
    if form == "tmx":
        return read_tmx(source, languages)
    if form == "segments":
        return _segment_pairs(source, target)
    read = read_ted_tags if form == "ted_tags" else read_lines
    return _line_pairs(source, target, read)


def _line_pairs(source: Path, target: Path, read) -> Iterator[tuple[str, str]]:
    counts = [0, 0]
    blank = True  # whether the surplus lines of the longer file are blank
    for left, right in zip_longest(read(source), read(target)):
        counts[0] += left is not None
        counts[1] += right is not None
        if left is not None and right is not None:
            yield left, right
        else:
            blank = blank and not (left or right or "").strip()
    if counts[0] != counts[1]:
        if not blank:
            raise _unequal(source, target, counts, "lines")
        longer = source if counts[0] > counts[1] else target
        logger.warning("warning: %s has additional blank lines at its end", longer)


def _segment_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    counts = [0, 0]
    shifted = None
    for left, right in zip_longest(read_segments(source), read_segments(target)):
        counts[0] += left is not None
        counts[1] += right is not None
        if left is None or right is None or shifted:
            continue
        if left[0] != right[0]:
            shifted = counts[0], left[0], right[0]
            continue
        yield left[1], right[1]
    if counts[0] != counts[1]:
        raise _unequal(source, target, counts, "segments")
    if shifted:
        place, *ids = shifted
        raise UserError(
            f"segment {place:,} has the id {ids[0]!r} in {source}, but {ids[1]!r} in {target}: "
            "they are not parallel; download both files again"
        )


def _unequal(source: Path, target: Path, counts: list[int], what: str) -> UserError:
    return UserError(
        f"{source} has {counts[0]:,} {what}, but {target} has {counts[1]:,}: "
        "they are not parallel; download both files again"
    )
