"""Is a file the one that was published?"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError
from .archives import is_archive
from .description import Download

CHUNK = 1 << 20


def checksums(path: Path, algorithms: Iterable[str], name: str | None = None) -> dict[str, str]:
    """Algorithm → hexadecimal checksum of a file's content.

    The content of an archive is the file itself, that of another ``.gz`` what is inside, so that a text has
    one checksum, packed or not. ``name`` decides which it is, where it is not the path's own.
    """
    name = name or path.name
    digests = {algorithm: hashlib.new(algorithm) for algorithm in algorithms}
    packed = name.endswith(".gz") and not is_archive(name)
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            while chunk := file.read(CHUNK):
                for digest in digests.values():
                    digest.update(chunk)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is not a whole gzip file; delete it and get it again") from None
    return {algorithm: digest.hexdigest() for algorithm, digest in digests.items()}


def difference(found: dict[str, str], published: Download) -> str | None:
    """In words, the first checksum that is not the published one; None if all are."""
    for algorithm, expected in published.checksums.items():
        if found[algorithm] != expected:
            return f"{algorithm} {found[algorithm]} instead of {expected}"
    return None
