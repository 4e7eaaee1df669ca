"""Parallel files: sentences at the same position, or in the same unit of one file, form a pair."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
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
    if form == "segments" and source != target:
        return _segment_pairs((source, target), languages, translator, left_out)
    if form == "segments":
        if not is_wmt_xml(source):
            raise UserError(
                f"{source} has no source and reference: only WMT's XML of 2021 and later has both in one "
                "file; name a file for each language"
            )
        return read_wmt_pairs(source, languages, translator, left_out)
    if form == "lines":
        _require_parallel(source, target)
    return _line_pairs((source, target), read_ted_tags if form == "ted_tags" else read_lines, left_out)


def _require_parallel(*paths: Path) -> None:
    """Raise UserError if one file has more lines that are not blank: before gigabytes are written."""
    counts = list(map(count_lines, paths))
    longer = paths[counts.index(max(counts))]
    if any(line.strip() for line in islice(read_lines(longer), min(counts), None)):
        raise _unequal(paths, counts, "lines")


def _line_pairs(paths: tuple[Path, Path], read: Callable, left_out: Counter) -> Iterator[tuple[str, str]]:
    pairs = further = longer = 0
    surplus = ""  # of the longer file; often blank
    for sides in zip_longest(*map(read, paths)):
        if None not in sides:
            pairs += 1
            yield sides
            continue
        further, longer = further + 1, 1 - sides.index(None)
        surplus = surplus or sides[longer].strip()
    if surplus:
        counts = [pairs, pairs]
        counts[longer] += further
        raise _unequal(paths, counts, "lines")
    if further:
        left_out[TRAILING] += further
        logger.warning("warning: %s has additional blank lines at its end", paths[longer])


def _segment_pairs(
    paths: tuple[Path, Path], languages: tuple[str, str], translator: str | None, left_out: Counter
) -> Iterator[tuple[str, str]]:
    sides = (
        read_wmt_side(path, language, translator, left_out) if is_wmt_xml(path) else read_segments(path)
        for path, language in zip(paths, languages)
    )
    counts = [0, 0]
    shifted = None
    for segments in zip_longest(*sides):
        counts = [count + (segment is not None) for count, segment in zip(counts, segments)]
        if None in segments or shifted:
            continue
        (name, left), (other, right) = segments
        if name != other:
            shifted = counts[0], name, other
            continue
        yield left, right
    if counts[0] != counts[1]:
        raise _unequal(paths, counts, "segments")
    if shifted:
        number, name, other = shifted
        raise UserError(
            f"segment {number:,} has the id {shown(name)} in {paths[0]}, but {shown(other)} in {paths[1]}: "
            "they are not parallel; download both files again"
        )


def _unequal(paths: tuple[Path, Path], counts: list[int], what: str) -> UserError:
    return UserError(
        f"{paths[0]} has {counts[0]:,} {what}, but {paths[1]} has {counts[1]:,}: "
        "they are not parallel; download both files again"
    )
