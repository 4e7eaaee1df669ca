"""Parallel files: sentences at the same position, or in the same unit of one file, form a pair."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path

from ...errors import UserError
from ...io import shown
from .columns import Table, read_columns
from .left_out import TRAILING
from .lines import count_lines, read_lines
from .segments import read_segments
from .ted_tags import read_ted_tags
from .tmx import read_tmx
from .wmt_xml import is_wmt_xml, read_wmt_pairs, read_wmt_side

logger = logging.getLogger(__name__)

FORMATS = ("lines", "ted_tags", "segments", "tmx", "columns")
ENDINGS = {"sgm": "segments", "sgml": "segments", "xml": "segments", "tmx": "tmx"}
COMPRESSED = (".gz", ".bz2", ".xz")


def format_of(name: str) -> str:
    """The format implied by a file name's extension, ignoring that of compression; ``lines`` by default."""
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return ENDINGS.get(name.rsplit(".", 1)[-1].lower(), "lines")


def read_pairs(
    source: Path,
    target: Path,
    languages: tuple[str, str],
    form: str,
    left_out: Counter | None = None,
    translator: str | None = None,
    table: Table | None = None,
) -> Iterator[tuple[str, str]]:
    """The pairs of a source and a target file in one of ``FORMATS``; ``tmx`` and ``columns`` have one file.

    Args:
        source: file of the source side.
        target: file of the target side, or the same file.
        languages: of both sides, in a format with languages.
        form: one of ``FORMATS``.
        left_out: is increased by what is left out, by reason.
        translator: of WMT's XML: whose reference is read.
        table: of ``columns``: where the sides are.

    Raises:
        UserError: the files do not match, with both counts if their lengths differ (of lines: before the
            first pair), or with the position if parallel segments have different ids; a file is damaged.
    """
    left_out = Counter() if left_out is None else left_out
    if form == "tmx":
        return read_tmx(source, languages, left_out)
    if form == "columns":
        return read_columns(source, table or Table((1, 2)), left_out)
    if form == "segments":
        if source == target:
            return _pairs_of_one(source, languages, translator, left_out)
        return _segment_pairs(source, target, languages, translator, left_out)
    if form == "ted_tags":
        return _line_pairs(source, target, read_ted_tags(source), read_ted_tags(target), left_out)
    _require_parallel(source, target)
    return _line_pairs(source, target, read_lines(source), read_lines(target), left_out)


def _require_parallel(source: Path, target: Path) -> None:
    """Raise UserError if one file has more lines that are not blank: before gigabytes are written."""
    counts = [count_lines(source), count_lines(target)]
    longer = source if counts[0] > counts[1] else target
    if any(line.strip() for line in islice(read_lines(longer), min(counts), None)):
        raise _unequal(source, target, counts, "lines")


def _line_pairs(source: Path, target: Path, left_lines, right_lines, left_out: Counter):
    counts = [0, 0]
    blank = True  # whether the surplus lines of the longer file are blank
    for left, right in zip_longest(left_lines, right_lines):
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
        left_out[TRAILING] += abs(counts[0] - counts[1])
        logger.warning("warning: %s has additional blank lines at its end", longer)


def _pairs_of_one(path: Path, languages: tuple[str, str], translator: str | None, left_out: Counter):
    if not is_wmt_xml(path):
        raise UserError(
            f"{path} has no source and reference: only WMT's XML of 2021 and later has both in one file; "
            "name a file for each language"
        )
    return read_wmt_pairs(path, languages, translator, left_out)


def _segment_pairs(
    source: Path, target: Path, languages: tuple[str, str], translator: str | None, left_out: Counter
) -> Iterator[tuple[str, str]]:
    sides = (
        read_wmt_side(path, language, translator, left_out) if is_wmt_xml(path) else read_segments(path)
        for path, language in zip((source, target), languages)
    )
    counts = [0, 0]
    shifted = None
    for left, right in zip_longest(*sides):
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
            f"segment {place:,} has the id {shown(ids[0])} in {source}, but {shown(ids[1])} in {target}: "
            "they are not parallel; download both files again"
        )


def _unequal(source: Path, target: Path, counts: list[int], what: str) -> UserError:
    return UserError(
        f"{source} has {counts[0]:,} {what}, but {target} has {counts[1]:,}: "
        "they are not parallel; download both files again"
    )
