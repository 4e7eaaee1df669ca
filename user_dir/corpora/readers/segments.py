"""``<seg>`` elements of the SGML test sets of WMT (``.sgm``) and IWSLT (``.xml``).

Many releases are not well-formed XML (bare ``&`` and ``<``, unquoted attributes), so only the segments are
parsed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from ...errors import UserError
from . import of_side
from .lines import on_one_line, read_lines

REFERENCE = re.compile(r"&(?:#\d+|#[xX][0-9A-Fa-f]+|\w+);")
SEGMENT = re.compile(r"<seg\b[^>]*?(?:/>|>(.*?)</seg>)", re.IGNORECASE | re.DOTALL)


@of_side("segments", "sgm", "sgml", "xml")
def read_segments(path: Path) -> Iterator[str]:
    """The text of every segment on one line, stripped, with references resolved as in HTML.

    Any other ``&`` is kept, as in ``R&D``.

    Raises:
        UserError: the file has no segment, or one that is not closed.
    """
    text = "\n".join(read_lines(path))
    segments = [match[1] or "" for match in SEGMENT.finditer(text)]
    if not segments or any("<seg" in segment for segment in segments):
        raise UserError(f"{path} has no <seg>, or one that is not closed")
    for segment in segments:
        yield on_one_line(REFERENCE.sub(lambda match: html.unescape(match[0]) or " ", segment))
