"""Folders of text files packed into one: ``runs.tar.xz`` stands for what the folder ``runs`` lacks.

Paths lead into it as into the folder: ``runs/first/result.json`` is the member ``first/result.json`` where
there is no such file. Members are not compressed one by one: ``result.json.bz2``, as it may be called in a
folder, is ``result.json``. ``tar -xf runs.tar.xz -C runs`` gives the folder.
"""

from __future__ import annotations

import io
import lzma
import os
import re
import tarfile
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from .errors import UserError, printable

EXTENSION = ".tar.xz"
MAX_ARCHIVE = 64 << 20
"""Bytes of an archive when unpacked; those of our experiments have up to 8 MB."""
MAX_NAME = 255
_MEMORY = 256 << 20  # bytes that decompression may take; our archives need 9 MB
_PATTERN = re.compile(r"[*?[]")


def there(path: Path) -> bool:
    """Whether a path is a file, or one of a packed folder."""
    try:
        return path.is_file() or member(path) is not None
    except OSError:  # a name that is too long; reading will report it
        return False


def member(path: Path) -> bytes | None:
    """The content of a file of a packed folder; None if the path is on the disk, or is none.

    Raises:
        UserError: the packed folder is damaged.
    """
    if os.path.lexists(path):
        return None
    found = _archive_of(path)
    if found is None:
        return None
    files, name = found
    return files.get(name, files.get(name.removesuffix(".bz2")))


def expanded(pattern: Path) -> list[Path]:
    """The paths that a pattern such as ``runs/*-seed*/result.json`` stands for, in order.

    A shell does the same, except in packed folders. If there are none, the pattern itself.
    """
    parts = pattern.parts
    first = next((index for index, part in enumerate(parts) if _PATTERN.search(part)), None)
    if first is None or os.path.lexists(pattern):
        return [pattern]
    base, rest = Path(*parts[:first]), parts[first:]
    names = {str(each.relative_to(base)) for each in base.glob("/".join(rest)) if base.is_dir()}
    found = _archive_of(base / "any")
    if found is not None:
        files, inside = found
        before = inside.removesuffix("any")
        for name in files:
            for each in (name, f"{name}.bz2") if rest[-1].endswith(".bz2") else (name,):
                own = each.removeprefix(before).split("/")
                if each.startswith(before) and len(own) == len(rest) and all(map(fnmatchcase, own, rest)):
                    names.add("/".join(own))
    return [base / name for name in sorted(names)] or [pattern]


def read_archive(path: Path) -> dict[str, bytes]:
    """The files of an archive by name; raises UserError if it is damaged, too large, or has anything else."""
    try:
        with path.open("rb") as file:
            packed = file.read(MAX_ARCHIVE + 1)
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
        content = decompressor.decompress(packed, MAX_ARCHIVE + 1)
        if len(content) > MAX_ARCHIVE:
            raise UserError(f"{path} unpacks to more than {MAX_ARCHIVE >> 20} MiB; records have far less")
        if not decompressor.eof or decompressor.unused_data:
            raise EOFError
        files: dict[str, bytes] = {}
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for entry in archive:
                fault = _fault(entry)
                if fault is not None or entry.name in files:
                    name, fault = printable(entry.name[:80]), fault or "is there twice"
                    raise UserError(f"{path}: {name!r} {fault}; get the archive again")
                files[entry.name] = archive.extractfile(entry).read()
                if len(files[entry.name]) != entry.size:
                    raise EOFError
    except (lzma.LZMAError, tarfile.TarError, EOFError, ValueError, MemoryError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged; get it again") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or 'it is damaged'}") from None
    return files


def _fault(entry: tarfile.TarInfo) -> str | None:
    if not entry.isreg() or entry.sparse is not None:
        return "is not a file"
    if len(entry.name) > MAX_NAME or not entry.name.isprintable() or "\\" in entry.name:
        return "is not a name of a file"
    if any(part in ("", ".", "..") for part in entry.name.split("/")):
        return "leads out of the folder"
    return None


def archive_of(folder: Path) -> Path:
    """The archive that a folder is packed into."""
    return folder.with_name(folder.name + EXTENSION)


def _archive_of(path: Path) -> tuple[dict[str, bytes], str] | None:
    """The files of the packed folder that a path leads into, and the name there."""
    for folder in path.parents:
        if folder.name in ("", ".."):
            return None
        archive = archive_of(folder)
        try:
            state = archive.stat()
        except (OSError, ValueError):
            continue
        version = state.st_mtime_ns, state.st_size, state.st_ino
        return _cached(archive, version), path.relative_to(folder).as_posix()
    return None


@lru_cache(maxsize=4)
def _cached(archive: Path, version: tuple[int, ...]) -> dict[str, bytes]:
    return read_archive(archive)
