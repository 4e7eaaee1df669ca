"""``<seg>`` elements: the test sets of WMT (``.sgm``) and IWSLT (``.xml``).

Many releases are not well-formed XML (bare ``&``, unquoted attributes), so only the segments are parsed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from ...errors import UserError
from .lines import read_lines

TAG = re.compile(r"<(/?)seg\b([^>]*)>", re.IGNORECASE)
NUMBER = re.compile(r"""\bid\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);")


def read_segments(path: Path) -> Iterator[tuple[str, str]]:
    """Id and text of every segment, with lines joined, entities resolved and whitespace stripped.

    Raises a UserError with the line of a segment that is not closed.
    """
    parts: list[str] | None = None  # of the current segment
    opened, name = 0, ""
    for line_number, line in enumerate(read_lines(path), start=1):
        position = 0
        for tag in TAG.finditer(line):
            if parts is None and not tag[1]:
                found = NUMBER.search(tag[2])
                parts, opened, name = [], line_number, found[1] if found else ""
            elif parts is not None and tag[1]:
                parts.append(line[position : tag.start()])
                yield name, unescape(" ".join(parts)).strip()
                parts = None
            else:
                break
            position = tag.end()
        else:
            if parts is not None:
                parts.append(line[position:])
            continue
        where = f"line {opened}: the segment {name} is not closed" if parts is not None else None
        raise UserError(
            f"{path}, {where or f'line {line_number}: </seg> without <seg>'}; download the file again"
        )
    if parts is not None:
        raise UserError(f"{path}, line {opened}: the segment {name} is not closed; download the file again")


def unescape(text: str) -> str:
    """Resolve entities; an ``&`` that does not start one is kept, even before letters (``R&D``)."""
    return ENTITY.sub(lambda found: html.unescape(found[0]), text)
