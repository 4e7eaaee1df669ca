"""NPZ files of other people: arrays read within limits, whatever the file claims to contain."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path

import numpy as np

from .bounded import DAMAGED, NOT_A_ZIP, ShortReads
from .errors import one_line

MAX_ARRAY = 256 << 20
"""Bytes of an array: the attention of 6 layers and 8 heads on 1,024 tokens has 201 MB."""
MAX_STRINGS = 16 << 20
"""Bytes of an array of strings; numpy takes four for each character of its longest string."""
MAX_HEADER = 10_000  # bytes of an array's header, as in numpy


class Arrays:
    """The arrays of an NPZ file, each read when it is asked for.

    Args:
        path: the file; it stays open.

    Raises:
        ValueError: it is no NPZ file, or its list of contents is too long.
        OSError: it cannot be read.
    """

    def __init__(self, path: str | Path):
        self._file = ShortReads(io.FileIO(path))
        try:
            self._archive = zipfile.ZipFile(self._file)
            entries = self._archive.infolist()
            self._entries = {each.filename.removesuffix(".npy"): each for each in entries}
            if len(self._entries) != len(entries):
                raise ValueError("it has an array twice")
        except BaseException as error:
            self._file.close()
            if isinstance(error, NOT_A_ZIP):
                raise ValueError("it is not an NPZ file, or is truncated") from None
            raise
        self.names = frozenset(self._entries)

    def size(self, name: str) -> int:
        """The bytes that an array takes with its header; more are not read. Raises KeyError."""
        return self._entries[name].file_size

    def read(self, name: str, most: int = MAX_ARRAY) -> np.ndarray:
        """Read an array.

        Args:
            name: its name, without ``.npy``.
            most: maximum number of bytes.

        Raises:
            KeyError: there is none of this name.
            ValueError: it has more bytes, or objects, or its header does not fit its bytes, or it is damaged.
        """
        entry = self._entries[name]
        try:
            return self._array(entry, most)
        except ValueError as error:
            raise ValueError(f"its array {name} {one_line(error)}") from None
        except (*DAMAGED, *NOT_A_ZIP, RuntimeError, OSError):  # RuntimeError: it is encrypted
            raise ValueError(f"its array {name} is damaged") from None

    def _array(self, entry: zipfile.ZipInfo, most: int) -> np.ndarray:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("is not compressed as numpy does")
        if entry.file_size > most:
            raise ValueError(f"has {entry.file_size:,} bytes; at most {most:,} are read")
        with self._archive.open(entry) as file:
            shape, in_columns, kind = _header(file)
            left = entry.file_size - file.tell()
            count = math.prod(shape)
            # Items may have 0 bytes, and a list of them any length.
            if kind.hasobject or count * kind.itemsize != left or count > most:
                raise ValueError(f"does not have the {left:,} bytes of {kind} {shape}")
            content = bytearray(left)
            if file.readinto(content) != left or file.read(1):
                raise ValueError("is truncated")
        return np.ndarray(shape, kind, content, order="F" if in_columns else "C")

    def close(self) -> None:
        """Close the file."""
        self._archive.close()
        self._file.close()


def _header(file) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether it is stored by columns, and type of an array; raises ValueError."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        shape, in_columns, kind = readers[version](file, max_header_size=MAX_HEADER)
    except (ValueError, KeyError, TypeError):
        raise ValueError("has no header of numpy") from None
    if min(shape, default=1) < 0:
        raise ValueError(f"has the shape {shape}")
    return shape, in_columns, kind
