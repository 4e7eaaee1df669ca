"""Checksums of published files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from ..bounded import unpacking
from .archives import is_archive


def checksums(path: Path, algorithms: Iterable[str], name: str | None = None) -> dict[str, str]:
    """Hexadecimal checksums of a file's content, by algorithm.

    For a ``.gz`` file that is not an archive, this is the decompressed content, so that a text has the same
    checksum compressed or not. ``name`` overrides the path's name for this decision.
    """
    name = name or path.name
    digests = {algorithm: hashlib.new(algorithm) for algorithm in algorithms}
    packed = name.endswith(".gz") and not is_archive(name)
    with unpacking(path, ending=".gz" if packed else "") as file:
        while chunk := file.read(1 << 20):
            for digest in digests.values():
                digest.update(chunk)
    return {algorithm: digest.hexdigest() for algorithm, digest in digests.items()}


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, as :func:`checksums` has it."""
    return checksums(path, ["sha256"])["sha256"]


def difference(found: dict[str, str], published: dict[str, str]) -> str | None:
    """Describe the first checksum that differs from the published one; None if all match."""
    for algorithm, expected in published.items():
        if found[algorithm] != expected:
            return f"{algorithm} {found[algorithm]} instead of {expected}"
    return None
