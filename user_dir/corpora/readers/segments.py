"""``<seg>`` elements of the SGML test sets of WMT (``.sgm``) and IWSLT (``.xml``).

Many releases are not well-formed XML (bare ``&`` and ``<``, unquoted attributes), so only the segments are
parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...bounded import MAX_LINE
from ...errors import UserError
from ...io import shown
from .lines import read_lines
from .references import on_one_line, resolve

TAG = re.compile(r"<(/?)seg\b([^>]*)>", re.IGNORECASE)
NUMBER = re.compile(r"""\bid\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)


def read_segments(path: Path) -> Iterator[tuple[str, str]]:
    """Id and text of every segment, with lines joined, references resolved and whitespace stripped.

    Raises:
        UserError: a segment is not closed, or too long; with its line.
    """
    parts: list[str] | None = None  # of the current segment
    opened, name, length = 0, "", 0

    def unclosed() -> UserError:
        return UserError(
            f"{path}, line {opened}: the segment {shown(name)} is not closed; download the file again"
        )

    for number, line in enumerate(read_lines(path, longest=16 * MAX_LINE), start=1):
        position = 0
        for tag in TAG.finditer(line):
            if tag[1]:
                if parts is None:
                    raise UserError(f"{path}, line {number}: </seg> without <seg>; download the file again")
                place = f"{path}, line {opened}"
                yield name, plain("\n".join([*parts, line[position : tag.start()]]), place)
                parts = None
            else:
                if parts is not None:
                    raise unclosed()
                found = NUMBER.search(tag[2])
                parts, opened, name, length = [], number, found[1] if found else "", 0
                if tag[2].endswith("/"):  # <seg/> is an empty segment
                    yield name, ""
                    parts = None
            position = tag.end()
        if parts is not None:
            parts.append(line[position:])
            length += len(parts[-1]) + 1
            if length > MAX_LINE:
                raise UserError(f"{path}, line {opened}: the segment has more than {MAX_LINE:,} characters")
    if parts is not None:
        raise unclosed()


def plain(text: str, place: str) -> str:
    """The text of a segment on one line: references resolved, sections of CDATA as they are."""
    pieces = CDATA.split(text)  # text, content, text, …
    return on_one_line("".join(each if i % 2 else resolve(each, place) for i, each in enumerate(pieces)))
