"""Zip archives by PyTorch, checked before PyTorch reads them."""

import os
import struct
import zipfile
from pathlib import Path

from ..errors import UserError


def is_archive(path: Path) -> bool:
    """Whether torch reads the file as a zip archive.

    Raises:
        UserError: reading the archive could take more memory than the file has bytes.
        BadZipFile: it is cut short.
    """
    strange = UserError(f"{path} is refused: its list of contents is not as PyTorch writes it")
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":  # as torch decides
            return False
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 98, 0))
        tail = file.read().rjust(98, b"\0")
        zip64, locator, end = tail[:56], tail[56:76], tail[76:]
        if end[:4] != b"PK\x05\x06" or end[-2:] != bytes(2):
            raise zipfile.BadZipFile
        # Python reads the list that ends where these records begin, torch the one at the offset in them.
        position = size - len(end)
        count, length, offset = struct.unpack("<10xHLL2x", end)
        if locator[:4] == b"PK\x06\x07":
            position = size - len(tail)
            count, length, offset = struct.unpack("<32xQQQ", zip64)
            if zip64[:4] != b"PK\x06\x06" or struct.unpack("<8xQ4x", locator) != (position,):
                raise strange
        if offset + length != position:
            raise strange
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
        if len(entries) != count:
            raise strange
        for entry in entries:
            file.seek(entry.header_offset)
            header = file.read(30)
            if len(header) < 30 or header[:4] != b"PK\x03\x04":
                raise strange
            if (entry.compress_type, *struct.unpack("<8xH20x", header)) != (zipfile.ZIP_STORED,) * 2:
                raise UserError(f"{path} is refused: it is compressed, which no checkpoint of PyTorch's is")
        unpacked = sum(max(entry.file_size, entry.compress_size) for entry in entries)
        if unpacked > size:
            raise UserError(f"{path} is refused: it claims to hold {unpacked} bytes, but has {size}")
    return True
