"""Extraction of members of archives (zip, or tar with any compression)."""

from __future__ import annotations

import bz2
import difflib
import gzip
import lzma
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tqdm import tqdm

from ..errors import UserError
from ..io import within

ENDINGS = r"\.(tgz|tar|tar\.gz|tbz2?|tar\.bz2|txz|tar\.xz|zip)"
PACKERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    RuntimeError,
    # For malformed headers, tarfile and zipfile raise various exceptions.
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)


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
    member, contains a name outside the folder, or has a link in place of a member.
    """
    wanted = set(members)
    try:
        with _open(archive) as entries:
            seen = []
            for name, size, plain, read in entries:
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
    except OSError as error:
        if error.errno is None:  # raised by a decompressor
            raise _broken(archive, error) from None
        raise UserError(f"cannot extract {archive}: {error.filename or folder}: {error.strerror}") from None
    except BROKEN as error:
        raise _broken(archive, error) from None
    if wanted:
        raise UserError(_missing(archive, sorted(wanted)[0], seen))


@contextmanager
def _open(archive: Path):
    """Yield the entries: name, size, whether it is a regular file, and a function that opens it.

    The content determines the format, not the name: a zip may replace a tar.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            yield (
                (each.filename, each.file_size, _is_plain(each), partial(file.open, each))
                for each in tqdm(file.infolist(), desc=f"extract {archive.name}", unit=" files", disable=None)
            )
        return
    size = archive.stat().st_size
    bar = tqdm(total=size, desc=f"extract {archive.name}", unit="B", unit_scale=True, disable=None)
    with archive.open("rb") as raw, bar, _unpacked(raw) as unpacked:
        with tarfile.open(fileobj=unpacked, mode="r|") as file:

            def entries():
                for each in file:
                    yield (
                        each.name.removeprefix("./"),
                        each.size,
                        each.isreg() and not each.issparse(),  # sparse files may claim any size
                        partial(file.extractfile, each),
                    )
                    bar.update(raw.tell() - bar.n)

            yield entries()
        while unpacked.read(1 << 20):  # tarfile ignores a truncated end
            pass


def _unpacked(raw: BinaryIO) -> BinaryIO:
    magic = raw.read(6)
    raw.seek(0)
    return next((unpack(raw) for start, unpack in PACKERS.items() if magic.startswith(start)), raw)


def _is_plain(entry: zipfile.ZipInfo) -> bool:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    return not entry.is_dir() and kind in (0, stat.S_IFREG)


def _require_inside(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", name):
        raise UserError(
            f"{archive} contains {name!r}, a path outside its folder; do not use it, download it again"
        )


def _copy(source, target: Path, size: int, archive: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
        if file.tell() != size:
            raise UserError(f"{archive} is incomplete ({target.name} is truncated); download it again")


def _broken(archive: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split()) or "it is truncated"
    return UserError(f"{archive} is incomplete or corrupt ({reason}); download it again")


def _missing(archive: Path, name: str, seen: list[str]) -> str:
    close = difflib.get_close_matches(name, seen, n=3, cutoff=0.5)
    has = f"similar members are {', '.join(close)}" if close else f"it has {len(seen):,} other members"
    return f"{archive} has no member {name}; {has}; is it the right archive?"
