"""Plain text, one sentence per line, possibly compressed: the format of OPUS, Europarl and most others."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...errors import UserError
from ...io import PACKED, unpack


def read_lines(path: Path, bounded: bool = False) -> Iterator[str]:
    r"""Lines of a UTF-8 file, plain, ``.gz`` or ``.bz2``, separated by "\n" or "\r\n" only.

    U+2028, U+0085 etc. do not end a line. A "\r" inside a line becomes a space, because many programs would
    read it as a line end; a byte order mark is dropped.

    Args:
        path: the file.
        bounded: refuse a ``.gz`` file, like any ``.bz2``, that unpacks to more than ``io.MOST`` bytes.
    """
    try:
        with _open(path, bounded) as file:
            for number, line in enumerate(file, start=1):
                yield decoded(line, number, path)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is an incomplete gzip file; download it again") from None


def decoded(line: bytes, number: int, name: Path | str) -> str:
    """One line as :func:`read_lines` yields it; its ``number``, from 1, and ``name`` are for errors."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}, line {number}: byte {line[error.start]:#04x} is not UTF-8; convert the file to UTF-8"
        ) from None
    return text.rstrip("\n").rstrip("\r").replace("\r", " ")


def _open(path: Path, bounded: bool) -> BinaryIO:
    if path.suffix == PACKED or (bounded and path.suffix == ".gz"):
        return io.BytesIO(unpack(path))
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")
