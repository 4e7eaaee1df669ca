"""Fetch a published file whole or not at all, from the first mirror that has it."""

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
NUMBER = "[0-9]{1,18}"  # of bytes; what a server says may be anything
TIMEOUT = 60  # seconds without a byte
AGENT = "Mozilla/5.0 (compatible; corpus preparation)"  # some hosts refuse Python's own
REMEDY = "run again, or get it by other means and give its folder with --raw"


def download(published: Download, target: Path, folder: Path | None = None) -> Path:
    """Fetch a file into ``target``, by way of ``target.part``, and return ``target``.

    What has arrived of a file with a known checksum stays in ``target.part`` when the connection breaks, and
    the next mirror, or the next run, goes on from there. Nothing is written out of ``folder``, that of
    ``target`` if not given, wherever links in it lead. Raises a ``UserError`` that says what each mirror
    answered; ``target`` then does not exist.
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
    """Fetch and check; returns what is wrong, or None. No wrong or unverifiable ``part`` stays."""
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
    # Its beginning may have been of another version of the file.
    return _try(url, part, published, name) if resumed else complaint


def _wrong(url: str, part: Path, published: Download, name: str) -> str | None:
    size = part.stat().st_size
    if published.size not in (None, size):
        return f"{url} is not the file expected: {size:,} bytes instead of {published.size:,}"
    try:
        # With nothing published but the name, a gzip file at least says itself whether it is whole.
        found = checksums(part, published.checksums or ["sha256"], name)
    except UserError:
        return f"{url} is not a whole gzip file"
    wrong = difference(found, published)
    return wrong and f"{url} is not the file expected: {wrong}"


def _fetch(url: str, part: Path, name: str) -> str | None:
    """Append to ``part`` what it lacks of ``url``; returns what went wrong, or None."""
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
        if error.code == 416:  # nothing lies beyond what has arrived; the checksum says whether that is all
            return None
        return f"{url} answered {error.code} {error.reason}"
    except UserError:
        raise
    # ValueError: an address, perhaps of a redirection, that is none.
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        return f"{url} could not be downloaded: {reason}"
    return None


def _start(answer, have: int) -> int:
    """Where in the file the answer begins: after what we have, or, of a server that knows no ranges, at 0."""
    begins = re.match(f"bytes ({NUMBER})-", answer.headers.get("Content-Range") or "")
    return have if answer.status == 206 and begins and int(begins[1]) == have else 0


def _save(answer, part: Path, start: int, total: int | None, name: str) -> int:
    """Write the answer into ``part`` from byte ``start`` on; returns the file's size."""
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
    # Whatever breaks here is the network's, which a mirror may mend; what breaks in writing is not.
    try:
        return answer.read(CHUNK)
    except OSError as error:
        raise HTTPException(str(error)) from None
