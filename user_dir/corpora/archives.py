"""Extraction of members of archives (zip, or tar with any compression)."""

from __future__ import annotations

import bz2
import difflib
import gzip
import io
import lzma
import re
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterable
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ..bounded import ShortReads, Unpacked, most_unpacked, too_large
from ..errors import UserError, one_line
from ..io import MAX_NAME, shown, within

ENDINGS = r"\.(tgz|tar|tar\.gz|tbz2?|tar\.bz2|txz|tar\.xz|zip)"
PACKERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
MAX_HEADERS = 1 << 20
"""Bytes of the headers of a tar's member, with its long name."""
MAX_GLOBAL = 100  # global headers of a tar; git writes one
MAX_SEEN = 10_000  # names of members that are remembered, for a suggestion


def is_archive(name: str) -> bool:
    """Whether a file name is that of an archive whose members are extracted."""
    return re.search(ENDINGS + "$", name) is not None


def split_name(name: str) -> tuple[str, str | None]:
    """``folder/x.tgz/inner/file`` → ``folder/x.tgz`` and ``inner/file``; None if it is no archive."""
    found = re.search(ENDINGS + "/", name)
    return (name[: found.end() - 1], name[found.end() :]) if found else (name, None)


def extract(archive: Path, members: Iterable[str], folder: Path) -> None:
    """Extract the named members to ``folder``, keeping their names.

    The archive is streamed once and never held in memory. Raises UserError if it is incomplete, lacks a
    member, contains a name outside the folder, has a link in place of a member, or unpacks to too much.
    """
    wanted, seen = set(members), []
    try:
        with _open(archive) as entries:
            for name, size, plain, read in entries:
                if len(seen) < MAX_SEEN and len(name) < 2 * MAX_NAME:
                    seen.append(name)
                _require_inside(archive, name)
                if name not in wanted:
                    continue
                if not plain:
                    raise UserError(f"{archive}: its member {name} is not a regular file; download it again")
                with read() as source:
                    _copy(source, within(folder, folder / name), size, archive)
                wanted.discard(name)
    except UserError:
        raise
    except Exception as error:  # tarfile and zipfile raise various ones for malformed headers
        if isinstance(error, OSError) and error.errno is not None:  # else raised by a decompressor
            where = error.filename or folder
            raise UserError(f"cannot extract {archive}: {where}: {error.strerror}") from None
        raise UserError(
            f"{archive} is incomplete or corrupt ({one_line(error)}); download it again"
        ) from None
    if wanted:
        name = min(wanted)
        close = difflib.get_close_matches(name, seen, n=3, cutoff=0.5)
        has = f"similar members are {', '.join(close)}" if close else f"it has {len(seen):,} other members"
        raise UserError(f"{archive} has no member {name}; {has}; is it the right archive?")


@contextmanager
def _open(archive: Path):
    """Yield the entries: name, size, whether it is a regular file, and a function that opens it.

    The content determines the format, not the name: a zip may replace a tar.
    """
    from tqdm import tqdm

    size = archive.stat().st_size
    if zipfile.is_zipfile(archive):
        with ShortReads(io.FileIO(archive)) as raw, zipfile.ZipFile(raw) as file:
            yield (
                (each.filename, each.file_size, _is_plain(each), partial(_member, file, each, archive, size))
                for each in tqdm(file.infolist(), desc=f"extract {archive.name}", unit=" files", disable=None)
            )
        return
    bar = tqdm(total=size, desc=f"extract {archive.name}", unit="B", unit_scale=True, disable=None)
    with archive.open("rb") as raw, bar, _unpacked(raw, size, archive) as unpacked:
        metered = Metered(unpacked, archive)
        with tarfile.open(fileobj=metered, mode="r|") as file:

            def entries():
                for each in file:
                    has_content = each.isreg() or each.type not in tarfile.SUPPORTED_TYPES
                    metered.allow((each.size if has_content else 0) + MAX_HEADERS)
                    yield (
                        each.name.removeprefix("./"),
                        each.size,
                        each.isreg() and not each.issparse(),  # sparse files may claim any size
                        partial(file.extractfile, each),
                    )
                    file.members.clear()  # tarfile keeps all
                    if len(file.pax_headers) > MAX_GLOBAL:
                        raise ValueError("it has too many global headers")
                    bar.update(raw.tell() - bar.n)

            yield entries()
        while unpacked.read(1 << 20):  # tarfile ignores a truncated end
            pass


class Metered:
    """Bytes of a tar, of which headers may take only so many before the next member.

    tarfile reads long names, and lists of pieces of sparse files, whole and of any length.
    """

    def __init__(self, file: BinaryIO, archive: Path):
        self._file, self._archive, self._left = file, archive, MAX_HEADERS

    def allow(self, number: int) -> None:
        """Allow ``number`` bytes from here."""
        self._left = number

    def read(self, size: int) -> bytes:
        """Read some bytes; raises UserError if they are more than allowed."""
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise UserError(
                f"{self._archive} has a header of more than {MAX_HEADERS:,} bytes, such as a long name; "
                "do not use it, download it again"
            )
        return content


def _unpacked(raw: BinaryIO, size: int, archive: Path) -> BinaryIO:
    magic = raw.read(6)
    raw.seek(0)
    for start, unpack in PACKERS.items():
        if magic.startswith(start):
            return io.BufferedReader(Unpacked(unpack(raw), most_unpacked(size), archive), 1 << 20)
    return raw


def _member(file: zipfile.ZipFile, entry: zipfile.ZipInfo, archive: Path, size: int) -> BinaryIO:
    """Open a member of a zip, which yields no more bytes than the list of contents says."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
        raise UserError(
            f"{archive}: {shown(entry.filename)} is compressed by an unusual method; unpack it yourself"
        )
    most = most_unpacked(min(entry.compress_size, size))
    if entry.file_size > most:
        raise too_large(f"{archive}: {shown(entry.filename)}", most)
    return file.open(entry)


def _is_plain(entry: zipfile.ZipInfo) -> bool:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    return not entry.is_dir() and kind in (0, stat.S_IFREG)


def _require_inside(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", name):
        raise UserError(
            f"{archive} contains {shown(name)}, a path outside its folder; do not use it, download it again"
        )


def _copy(source, target: Path, size: int, archive: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
        if file.tell() != size:
            raise UserError(f"{archive} is incomplete ({target.name} is truncated); download it again")
