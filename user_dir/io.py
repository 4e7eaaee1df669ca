"""Files: read with clear errors, written whole or not at all, and one process at a time on a folder."""

from __future__ import annotations

import bz2
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from .errors import UserError, one_line

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None


PACKED = ".bz2"
"""Ends the names of compressed files, as records of experiments have them."""
MOST = 64 << 20
"""Bytes to which a compressed file may unpack; the logs and tables of a run have less than a tenth of it."""
LONGEST = 100  # characters of a name


def name_fault(name: Any, folders: bool = False, longest: int = LONGEST) -> str | None:
    """Why ``name`` cannot become the name of a file; None if it can.

    Args:
        name: as somebody wrote it.
        folders: it may have several parts, separated by ``/``, each a plain name.
        longest: how many characters it may have; twice as many bytes in each part.
    """
    if not isinstance(name, str):
        return "is not a text"
    if not name:
        return "is empty"
    if len(name) > longest:
        return f"is longer than {longest} characters"
    if not name.isprintable():  # control characters, line ends, lone surrogates, invisible letters
        return "has a character that cannot be printed"
    if "\\" in name or re.match("[A-Za-z]:", name):
        return "is a path of Windows"
    if name.startswith("/"):
        return "is an absolute path"
    if "/" in name and not folders:
        return "has a '/'"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return f"has a part {part!r}"
        if part.startswith("-"):
            return "begins with '-', like a flag"
        if len(part.encode()) > 2 * longest:
            return f"is longer than {2 * longest} bytes"
    return None


def shown(value: Any) -> str:
    """A value for an error message: its repr, of a long one the beginning."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


def leads_out(folder: Path, path: Path) -> Path | None:
    """Where ``path`` leads, all links followed, if that is not within ``folder``; None if it is."""
    try:
        end = path.resolve()
        return None if end.is_relative_to(folder.resolve()) else end
    except (OSError, RuntimeError, ValueError):  # links in a circle, a name that can be none
        return path


def within(folder: Path, path: Path) -> Path:
    """Return ``path``, about to be written; raise UserError if a link, or ``..``, leads out of ``folder``."""
    end = leads_out(folder, path)
    if end is not None:
        raise UserError(f"{path} is not written: it leads out of {folder}, to {end}; remove the link")
    return path


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Yield an empty file to write to; it replaces ``path`` if the body succeeds, and is removed if not.

    Its name is its own, ``NAME.RANDOM.tmp`` in the folder of ``path``: of several writers at once each
    writes a whole file, and the last to end prevails. A killed run leaves its file behind; nothing reads it.

    Makes the folder. Raises UserError where the file system refuses.
    """
    path = Path(path)
    if path.name in ("", ".."):
        raise UserError(f"cannot write {str(path)!r}: it names a folder, not a file")
    # Of a long name the beginning, so that the temporary one is no longer than a name may be.
    beside = path.with_name(f"{path.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        make_folder(path.parent)
        beside.touch(exist_ok=False)  # not by tempfile, which lets nobody else read it, whatever the umask
        try:
            yield beside
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


def check_output(path: Path) -> None:
    """Raise a UserError unless a file could be written to ``path``; call it before what takes long."""
    if path.name in ("", "..") or os.path.isdir(path):
        raise UserError(f"cannot write {str(path)!r}: it names a folder, not a file")
    try:
        path.exists()  # raises OSError where the name is too long, or a file stands in the place of a folder
        folder = next(each for each in path.absolute().parents if each.exists())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    if not folder.is_dir():
        raise UserError(f"cannot write {path}: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: no permission to write in {folder}")


def durable(file: BinaryIO) -> None:
    """Flush a file to the disk; a full network disk may refuse only here."""
    file.flush()
    os.fsync(file.fileno())


def copy_file(source: str | Path, path: str | Path) -> None:
    """Copy a file to ``path``, whole or not at all."""
    with written_beside(path) as beside, open(source, "rb") as whole, beside.open("wb") as file:
        shutil.copyfileobj(whole, file, 1 << 20)
        durable(file)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; raises UserError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from None


def write_json(path: Path, values: dict) -> None:
    """Write a JSON file, its texts as they are."""
    write_text(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; what is not text, as names of files may hold, becomes an escape."""
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_packed(path: Path, text: str) -> None:
    """Write a text file compressed by bzip2, in UTF-8; the same text always makes the same file."""
    with written_beside(path) as beside:
        beside.write_bytes(bz2.compress(text.encode("utf-8")))


def packed_or_plain(path: Path) -> Path:
    """``path``, or where only that is there, the compressed file beside it."""
    packed = path.with_name(path.name + PACKED)
    try:
        return packed if packed.is_file() and not path.is_file() else path
    except OSError:  # a name too long, which reading tells
        return path


def unpack(path: Path) -> bytes:
    """What a ``.bz2`` file holds; raises UserError where that is more than :data:`MOST` bytes, or broken."""
    try:
        with bz2.open(path) as file:
            content = file.read(MOST + 1)
    except EOFError:
        raise UserError(f"{path} is cut short; get it again") from None
    except OSError as error:
        reason = error.strerror or "it is not a bzip2 file"
        raise UserError(f"cannot unpack {path}: {reason}") from None
    if len(content) > MOST:
        raise UserError(f"{path} unpacks to more than {MOST >> 20} MiB; unpack it yourself if you trust it")
    return content


def read_text(path: Path, what: str, encoding: str = "utf-8") -> str:
    """A file as text, unpacked if its name ends in ``.bz2``; ``what`` it is to be, for the ``UserError``."""
    try:
        if path.suffix == PACKED:
            return io.TextIOWrapper(io.BytesIO(unpack(path)), encoding).read()
        return path.read_text(encoding=encoding)
    except UserError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"cannot read {what} {path}: {reason}") from None


def parse_json(text: str) -> Any:
    """Parse JSON; raises ValueError if it is invalid or nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_yaml(path: Path) -> tuple[Any, yaml.Node | None]:
    """Read a YAML file: its plain data, and its root node, which knows the line of each key.

    Raises:
        UserError: the file cannot be read, or is not YAML of plain data.
    """
    text = read_text(path, "the YAML file")
    try:
        return yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    # ValueError: a date, or a number, that is none; TypeError: a key that can be none.
    except (yaml.YAMLError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{path} is not valid YAML: {one_line(error)}") from None


class Busy(UserError):
    """Another process holds the lock of the folder."""


@contextmanager
def locked(folder: Path, doing: str) -> Iterator[tuple[int, ...]]:
    """Lock a folder, making it if need be; ``doing`` tells other processes what is going on.

    The lock ends with the process, however it ends. Yields the file descriptors to pass to a child
    (``pass_fds``) that is to hold the lock as well.

    Raises:
        Busy: another process holds it.
    """
    make_folder(folder)
    if fcntl is None:
        yield ()
        return
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another run is {doing} {folder}; wait until it ends") from None
        yield (lock,)
    finally:
        os.close(lock)
