"""Fetch a file whole or not at all, and check what it holds."""

from __future__ import annotations

import gzip
import hashlib
import urllib.error
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path

from tqdm import tqdm

from ..errors import UserError

CHUNK = 1 << 20
TIMEOUT = 60  # seconds without a byte


def download(url: str, target: Path, sha256: str | None = None) -> Path:
    """Fetch ``url`` into ``target``, by way of ``target.part``, and return ``target``.

    ``sha256`` is that of the content (see ``content_sha256``). A file that is missing, cut short or different
    raises a ``UserError``, and leaves neither ``target`` nor ``target.part``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        _fetch(url, part)
        if sha256 is not None:
            found = content_sha256(part, compressed=target.name.endswith(".gz"))
            if found != sha256:
                raise UserError(
                    f"{url} is not the file expected: sha256 {found} instead of {sha256}; "
                    f"get it from another source and give its folder with --raw"
                )
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _fetch(url: str, part: Path) -> None:
    remedy = "run again, or get it by other means and give its folder with --raw"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, part.open("wb") as file:
            expected = answer.headers.get("Content-Length")
            total = int(expected) if expected else None
            name = part.name[: -len(".part")]
            with tqdm(total=total, desc=name, unit="B", unit_scale=True, unit_divisor=1024) as bar:
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
            if total is not None and bar.n != total:
                raise UserError(f"the connection to {url} broke after {bar.n:,} of {total:,} bytes; {remedy}")
    except urllib.error.HTTPError as error:
        raise UserError(f"{url} answered {error.code} {error.reason}; {remedy}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise UserError(f"{url} could not be downloaded: {reason}; {remedy}") from None


def content_sha256(path: Path, compressed: bool | None = None) -> str:
    """The sha256 of a file's content: of what is inside, if it is gzip-compressed (default: by its name)."""
    if compressed is None:
        compressed = path.name.endswith(".gz")
    digest = hashlib.sha256()
    try:
        with gzip.open(path) if compressed else path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is not a whole gzip file; delete it and get it again") from None
    return digest.hexdigest()
