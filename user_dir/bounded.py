"""Files read within limits: a small file cannot fill memory or disk, whatever it claims to contain."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import UserError
from .packed_folders import member

MAX_LINE = 1 << 20
"""Bytes of a line, far more than any sentence; a document in one line has them too."""
MAX_MADE_LINE = 32 * MAX_LINE
"""Bytes of a line that we have written: normalised, and in pieces, a line is up to 17 times as long."""
MAX_CHARACTERS = 10_000_000
"""Characters of a checkpoint's settings, and of all its keys."""
MAX_CLAIMED = 16
"""How many times its size a checkpoint's tensors may have: tied ones are stored once under several names."""
MAX_EXPANSION = 100
"""How many times its size a file may unpack to; text unpacks to 3 to 30 times its size."""
MIN_EXPANDED = 64 << 20
"""Bytes that any file may unpack to."""
MAX_DIRECTORY = 16 << 20
"""Bytes of a zip's list of contents, in which a member takes about a hundred."""
MAX_WHOLE = 64 << 20
"""Bytes of a file that is read at once: logs, tables and translations of a test set have a tenth of it."""

BLOCK = 1 << 16
COMPRESSED = {".gz": ("gzip", gzip.open), ".bz2": ("bzip2", bz2.open), ".xz": ("xz", lzma.open)}
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, MemoryError)
"""What decompressors raise, besides an OSError without a number. MemoryError: xz may ask for 4 GiB."""
NOT_A_ZIP = (zipfile.BadZipFile, NotImplementedError, struct.error, UnicodeDecodeError, EOFError)
"""What zipfile raises for a damaged list of contents."""


def most_unpacked(size: int) -> int:
    """The number of bytes that a file of ``size`` bytes may unpack to."""
    return max(MIN_EXPANDED, MAX_EXPANSION * size)


class Unpacked(io.RawIOBase):
    """A stream of unpacked bytes that ends with a UserError once they are too many.

    Args:
        stream: the unpacked bytes.
        most: maximum number of bytes.
        name: name of the file, for the error.
    """

    def __init__(self, stream: BinaryIO, most: int, name: Path | str):
        self._stream, self._most, self._left, self._name = stream, most, most, name

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer) -> int:
        """Read some bytes."""
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise too_large(self._name, self._most)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
        super().close()


class ShortReads(io.BufferedReader):
    """A zip file to open with ``zipfile``, which reads the list of contents, of any claimed length, at once.

    In memory the list takes some ten times its bytes.
    """

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes; raises ValueError for more than :data:`MAX_DIRECTORY`."""
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        size = left if size is None or size < 0 else min(size, left)
        if size > MAX_DIRECTORY:
            raise ValueError(f"its list of contents has more than {MAX_DIRECTORY:,} bytes")
        return super().read(size)


def too_large(name: Path | str, most: int) -> UserError:
    """The error for a file or member that unpacks to more than ``most`` bytes."""
    return UserError(
        f"{name} unpacks to more than {most >> 20} MiB, which is too much for its size; unpack it yourself "
        "if you trust it"
    )


@contextmanager
def unpacking(path: Path, most: int | None = None, ending: str | None = None) -> Iterator[BinaryIO]:
    """Yield the bytes of a file, decompressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.

    Args:
        path: the file, which may be in a packed folder (:mod:`.packed_folders`).
        most: maximum number of bytes that it may unpack to; None for what fits its size.
        ending: what its name is taken to end in.

    Raises:
        UserError: the compressed file is damaged, or unpacks to too many bytes.
        OSError: the file cannot be read.
    """
    packed = member(path)
    if packed is not None:
        yield io.BytesIO(packed)
        return
    ending = path.suffix if ending is None else ending
    if ending not in COMPRESSED:
        with path.open("rb") as file:
            yield file
        return
    kind, opened = COMPRESSED[ending]
    try:
        with opened(path) as stream:
            limited = Unpacked(stream, most or most_unpacked(os.path.getsize(path)), path)
            with io.BufferedReader(limited, BLOCK) as file:
                yield file
    except UserError:
        raise
    except DAMAGED:
        raise UserError(f"{path} is a truncated or damaged {kind} file; get it again") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise UserError(f"{path} is not a {kind} file; get it again") from None


def read_whole(path: Path, most: int) -> bytes:
    """The bytes of a file, decompressed as by :func:`unpacking`; UserError if more than ``most``."""
    with unpacking(path, most) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"{path} has more than {most:,} bytes, too many for what it should be")
    return content


def bounded_lines(
    file: BinaryIO, name: Path | str, longest: int = MAX_LINE, ends: bool = False
) -> Iterator[bytes]:
    r"""The lines of a file; ``name`` is for the error, ``ends`` keeps their "\n".

    Raises:
        UserError: a line has more than ``longest`` bytes.
    """
    number = 0
    while line := file.readline(longest + 2):
        number += 1
        content = line.removesuffix(b"\n")
        if len(content) > longest:
            raise too_long(name, number, longest)
        yield line if ends else content


def too_long(name: Path | str, number: int, longest: int) -> UserError:
    """The error for a line that is too long; its ``number`` counts from 1."""
    return UserError(f"{name}, line {number} has more than {longest:,} bytes; write one sentence per line")
