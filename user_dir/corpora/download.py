"""Download of published files from the first working mirror, completely or not at all."""

from __future__ import annotations

import logging
import re
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from tqdm import tqdm

from ..errors import UserError
from ..io import within
from .checksums import checksums, difference
from .description import Download

logger = logging.getLogger(__name__)

CHUNK = 1 << 20
NUMBER = "[0-9]{1,18}"  # of bytes; servers may send anything
TIMEOUT = 60  # seconds without a byte
AGENT = "Mozilla/5.0 (compatible; corpus preparation)"  # some hosts reject Python's default
REMEDY = "run again, or download it by other means and pass its folder with --raw"


def download(published: Download, target: Path, folder: Path | None = None) -> Path:
    """Download a file to ``target`` via ``target.part``, and return ``target``.

    If the connection breaks, a partial file with a known checksum is kept in ``target.part``, and the next
    mirror or run resumes it. Nothing is written outside ``folder`` (default: that of ``target``), even
    through links. Raises a UserError with the response of each mirror; ``target`` then does not exist.
    """
    part = within(folder or target.parent, target.with_name(target.name + ".part"))
    target.parent.mkdir(parents=True, exist_ok=True)
    complaints: list[str] = []
    for url in published.urls:
        if complaints:
            logger.warning("%s; trying %s", complaints[-1], url)
        complaint = _try(url, part, published, target.name)
        if complaint is None:
            part.replace(target)
            return target
        complaints.append(complaint)
    raise UserError(f"{'; '.join(complaints)}; {REMEDY}")


def _try(url: str, part: Path, published: Download, name: str) -> str | None:
    """Download and verify; returns the problem or None. A wrong or unverifiable ``part`` is removed."""
    if not published.checksums:
        part.unlink(missing_ok=True)
    resumed = part.is_file()
    complaint = _fetch(url, part, name)
    if complaint is not None:
        if not published.checksums or (part.is_file() and not part.stat().st_size):
            part.unlink(missing_ok=True)
        return complaint
    complaint = _wrong(url, part, published, name)
    if complaint is None:
        return None
    part.unlink(missing_ok=True)
    # The resumed beginning may have been of another version of the file.
    return _try(url, part, published, name) if resumed else complaint


def _wrong(url: str, part: Path, published: Download, name: str) -> str | None:
    size = part.stat().st_size
    if published.size not in (None, size):
        return f"{url} is not the expected file: {size:,} bytes instead of {published.size:,}"
    try:
        # Without published checksums, at least verify that a gzip file is complete.
        found = checksums(part, published.checksums or ["sha256"], name)
    except UserError:
        return f"{url} is an incomplete gzip file"
    wrong = difference(found, published.checksums)
    return wrong and f"{url} is not the expected file: {wrong}"


def _fetch(url: str, part: Path, name: str) -> str | None:
    """Append the missing part of ``url`` to ``part``; returns the problem or None."""
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"User-Agent": AGENT})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            start = _start(answer, have)
            expected = answer.headers.get("Content-Length") or ""
            total = start + int(expected) if re.fullmatch(NUMBER, expected) else None
            arrived = _save(answer, part, start, total, name)
        if total not in (None, arrived):
            return f"the connection to {url} broke after {arrived:,} of {total:,} bytes"
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing left to send; the checksum decides whether the file is complete
            return None
        return f"{url} answered {error.code} {error.reason}"
    except UserError:
        raise
    # ValueError: an invalid URL, perhaps of a redirect.
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        return f"{url} could not be downloaded: {reason}"
    return None


def _start(answer, have: int) -> int:
    """The offset at which the response begins: ``have``, or 0 if the server does not support ranges."""
    begins = re.match(f"bytes ({NUMBER})-", answer.headers.get("Content-Range") or "")
    return have if answer.status == 206 and begins and int(begins[1]) == have else 0


def _save(answer, part: Path, start: int, total: int | None, name: str) -> int:
    """Write the response to ``part`` from byte ``start``; returns the file's size."""
    try:
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            with tqdm(
                total=total, initial=start, desc=name, unit="B", unit_scale=True, unit_divisor=1024
            ) as bar:
                while chunk := _read(answer):
                    file.write(chunk)
                    bar.update(len(chunk))
            file.truncate()
            return file.tell()
    except OSError as error:
        raise UserError(f"cannot write {part}: {error.strerror}; {REMEDY}") from None


def _read(answer) -> bytes:
    # Errors in reading are the network's, and another mirror may help; errors in writing are not.
    try:
        return answer.read(CHUNK)
    except OSError as error:
        raise HTTPException(str(error)) from None
