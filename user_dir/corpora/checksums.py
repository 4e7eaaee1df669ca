"""Checksums of published files."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from ..bounded import Unpacked, most_unpacked
from ..errors import UserError
from .archives import is_archive
from .description import Download

CHUNK = 1 << 20


def checksums(path: Path, algorithms: Iterable[str], name: str | None = None) -> dict[str, str]:
    """Hexadecimal checksums of a file's content, by algorithm.

    For a ``.gz`` file that is not an archive, this is the decompressed content, so that a text has the same
    checksum compressed or not. ``name`` overrides the path's name for this decision.
    """
    name = name or path.name
    digests = {algorithm: hashlib.new(algorithm) for algorithm in algorithms}
    packed = name.endswith(".gz") and not is_archive(name)
    try:
        with _opened(path, packed) as file:
            while chunk := file.read(CHUNK):
                for digest in digests.values():
                    digest.update(chunk)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is an incomplete gzip file; delete it and download it again") from None
    return {algorithm: digest.hexdigest() for algorithm, digest in digests.items()}


def _opened(path: Path, packed: bool) -> BinaryIO:
    if not packed:
        return path.open("rb")
    return io.BufferedReader(Unpacked(gzip.open(path), most_unpacked(path.stat().st_size), path), CHUNK)


def difference(found: dict[str, str], published: Download) -> str | None:
    """Describe the first checksum that differs from the published one; None if all match."""
    for algorithm, expected in published.checksums.items():
        if found[algorithm] != expected:
            return f"{algorithm} {found[algorithm]} instead of {expected}"
    return None
