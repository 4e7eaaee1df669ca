"""Plain text, one sentence per line, possibly compressed: the format of OPUS, Europarl and most others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...bounded import BLOCK, MAX_LINE, MAX_MADE_LINE, bounded_lines, unpacking
from ...errors import UserError


def read_lines(path: Path, longest: int = MAX_LINE, most: int | None = None) -> Iterator[str]:
    r"""Lines of a UTF-8 file, plain, ``.gz``, ``.bz2`` or ``.xz``, separated by "\n" or "\r\n" only.

    U+2028, U+0085 etc. do not end a line. A "\r" inside a line becomes a space, because many programs would
    read it as a line end; a byte order mark is dropped.

    Args:
        path: the file.
        longest: maximum number of bytes of a line.
        most: maximum number of bytes that a compressed file may unpack to; None for what fits its size.

    Raises:
        UserError: a line is not UTF-8 or too long, or a compressed file is damaged or too large.
    """
    with unpacking(path, most) as file:
        for number, line in enumerate(bounded_lines(file, path, longest), start=1):
            yield decoded(line, number, path)


def read_made_lines(path: Path) -> Iterator[str]:
    """The lines of a text that this project has written: normalised or in pieces, they may be longer."""
    return read_lines(path, MAX_MADE_LINE)


def decoded(line: bytes, number: int, name: Path | str) -> str:
    """One line as :func:`read_lines` yields it; its ``number``, from 1, and ``name`` are for errors."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}, line {number}: byte {line[error.start]:#04x} is not UTF-8; convert the file to UTF-8"
        ) from None
    return text.rstrip("\n").rstrip("\r").replace("\r", " ")


def count_lines(path: Path) -> int:
    """The number of lines that :func:`read_lines` yields; a hundred times faster."""
    count, last = 0, b"\n"
    with unpacking(path) as file:
        while block := file.read(BLOCK):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
