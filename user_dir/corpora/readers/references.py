"""Character and entity references of SGML and XML, as people write them: bare ``&``, codes of HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.entities import html5

from ...errors import UserError
from ...io import shown

REFERENCE = re.compile(r"&(?:#([0-9]+)|#[xX]([0-9A-Fa-f]+)|([A-Za-z]\w*));")
BREAK = re.compile(r"[ \t]*[\r\n]\s*")
"""Only these end a line; other Unicode separators are text."""
MAX_CHARACTER = 0x10FFFF
_SURROGATE = re.compile("[\ud800-\udfff]")


def number_of(found: re.Match, place: Callable[[int], str]) -> int | None:
    """The number of a character reference; None for a named one, and for a bare ``&``.

    Raises:
        UserError: it is beyond Unicode; ``place`` tells the file and line of an offset.
    """
    digits, base = (found[1], 10) if found[1] else (found[2], 16)
    if digits is None:
        return None
    digits = digits.lstrip("0")
    number = int(digits or "0", base) if len(digits) < 8 else MAX_CHARACTER + 1
    if number > MAX_CHARACTER:
        raise UserError(f"{place(found.start())}: {shown(found[0])} is no character; download the file again")
    return number


def named(found: re.Match) -> str | None:
    """The text of an entity of HTML; None if there is none of this name."""
    return html5.get(found[3] + ";") if found[3] else None


def resolve(text: str, place: str) -> str:
    """Resolve references as HTML does; an ``&`` that does not start one is kept, as in ``R&D``.

    References to control characters become spaces. ``place`` is for errors, as the file and line.
    """

    def replaced(found: re.Match) -> str:
        number = number_of(found, lambda _: place)
        if number is None:
            return named(found) or found[0]
        return chr(number) if 0xD800 <= number < 0xE000 else html.unescape(f"&#{number};") or " "

    return joined_surrogates(REFERENCE.sub(replaced, text))


def joined_surrogates(text: str) -> str:
    """Text with pairs of surrogates as the characters that they stand for, and single ones as U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def on_one_line(text: str) -> str:
    """Text with its line breaks as spaces, stripped."""
    return BREAK.sub(" ", text).strip()
