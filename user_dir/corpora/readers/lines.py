"""Plain text, one sentence a line, perhaps gzipped: the Moses format of OPUS, Europarl and most others."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from ...errors import UserError


def read_lines(path: Path) -> Iterator[str]:
    r"""Lines of a UTF-8 file, plain or ``.gz``, ended by "\n" or "\r\n" and by nothing else.

    U+2028, U+0085 and the like stay in the line. A "\r" inside a line becomes a space, since many programs
    would take it for the end of one; a byte order mark is dropped.
    """
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"{path}, line {number}: byte {line[error.start]:#04x} is not UTF-8; "
                        "convert the file to UTF-8"
                    ) from None
                yield text.rstrip("\n").rstrip("\r").replace("\r", " ")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is not a whole gzip file; get it again") from None
