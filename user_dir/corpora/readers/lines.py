"""Plain text, one sentence per line, possibly compressed: the format of OPUS, Europarl and most others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...errors import UserError
from ...files import UNREADABLE, open_binary
from . import of_side

_BREAK = re.compile(r"[ \t]*[\r\n]\s*")


@of_side("lines")
def read_lines(path: Path) -> Iterator[str]:
    r"""Lines of a UTF-8 file, plain, ``.gz``, ``.bz2`` or ``.xz``, separated by "\n" or "\r\n" only.

    U+2028, U+0085 etc. do not end a line. A "\r" inside a line becomes a space, because many programs would
    read it as a line end; a byte order mark is dropped.

    Raises:
        UserError: a line is not UTF-8, with its number; or the file cannot be read.
    """
    try:
        with open_binary(path) as file:
            for number, line in enumerate(file, start=1):
                yield decoded(line, number, path)
    except UNREADABLE as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def decoded(line: bytes, number: int, name: Path | str) -> str:
    """One line as :func:`read_lines` yields it; its ``number``, from 1, and ``name`` are for errors."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}, line {number}: byte {line[error.start]:#04x} is not UTF-8") from None
    return text.rstrip("\n").rstrip("\r").replace("\r", " ")


def on_one_line(text: str) -> str:
    """Text with line breaks replaced by spaces, stripped; Unicode's other separators are kept."""
    return _BREAK.sub(" ", text).strip()
