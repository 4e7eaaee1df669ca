"""Reading files with clear errors, writing them atomically, and locking folders."""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from .bounded import MAX_WHOLE, read_whole
from .errors import UserError
from .packed_folders import there

try:
    import fcntl
except ImportError:  # not available on Windows
    fcntl = None


PACKED = ".bz2"
"""Extension of compressed files, as in records of experiments."""
MAX_JSON = 16 << 20
"""Characters of a JSON file; those of a run have some thousand."""
MAX_NAME = 100  # maximum number of characters in a name
SHOWN = 80  # maximum number of characters of a value in an error message


def name_fault(name: Any, folders: bool = False, longest: int = MAX_NAME) -> str | None:
    """Why ``name`` is not a valid file name; None if it is valid.

    Args:
        name: name from user input.
        folders: allow several parts separated by ``/``, each a valid name.
        longest: maximum number of characters; each part may have twice as many bytes.
    """
    if not isinstance(name, str):
        return "is not a string"
    if not name:
        return "is empty"
    if len(name) > longest:
        return f"is longer than {longest} characters"
    if not name.isprintable():  # control characters, line ends, lone surrogates, invisible letters
        return "has a character that cannot be printed"
    if "\\" in name or re.match("[A-Za-z]:", name):
        return "is a Windows path"
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
    """A value for an error message: its repr, truncated if long."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > SHOWN:
            return text[:SHOWN] + "…"
    return text


def _pieces(value: Any) -> Iterator[str]:
    """The repr of plain data, bit by bit: that of a value with YAML aliases may not fit the memory.

    reprlib is not used, because it would also shorten what fits, and shorten it in the middle.
    """
    if type(value) is dict:
        yield "{"
        for number, (key, inner) in enumerate(value.items()):
            yield ", " if number else ""
            yield from _pieces(key)
            yield ": "
            yield from _pieces(inner)
        yield "}"
    elif type(value) in (list, tuple):
        opening, closing = "[]" if type(value) is list else "()"
        yield opening
        for number, inner in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(inner)
        yield "," + closing if len(value) == 1 and type(value) is tuple else closing
    elif isinstance(value, (str, bytes)):
        yield repr(value[: SHOWN + 1])
    elif type(value) is int and value.bit_length() > 8 * SHOWN:
        yield hex(value)  # Python refuses to write thousands of decimal digits
    else:
        yield repr(value)


def leads_out(folder: Path, path: Path) -> Path | None:
    """The target of ``path``, with links resolved, if it is outside ``folder``; None if it is inside."""
    try:
        end = path.resolve()
        return None if end.is_relative_to(folder.resolve()) else end
    except (OSError, RuntimeError, ValueError):  # circular links, invalid names
        return path


def within(folder: Path, path: Path) -> Path:
    """Return a ``path`` to write to; raise UserError if a link or ``..`` leads outside ``folder``."""
    end = leads_out(folder, path)
    if end is not None:
        raise UserError(f"{path} is not written: it leads out of {folder}, to {end}; remove the link")
    return path


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield an empty file to write to, which replaces ``path`` if the body succeeds and is removed otherwise.

    It has a unique name, ``NAME.RANDOM.tmp``, in the folder of ``path``: concurrent writers each write a
    complete file, and the last one to finish prevails. A file left by a killed run is never read.

    Creates the folder. Raises UserError if the file system refuses.
    """
    path = Path(path)
    if path.name in ("", ".."):
        raise UserError(f"cannot write {str(path)!r}: it names a folder, not a file")
    # Truncated, so that the temporary name does not exceed the maximum length of names.
    beside = path.with_name(f"{path.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        make_folder(path.parent)
        beside.touch(exist_ok=False)  # unlike tempfile, respects the umask
        try:
            yield beside
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, which need not exist, by whatever links."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them does not exist
        pass
    try:
        return one.resolve() == other.resolve()
    except (OSError, RuntimeError, ValueError):  # circular links, invalid names
        return False


def check_output(path: Path, inputs: Iterable[Path] = (), flag: str = "--output") -> None:
    """Raise UserError unless a file can be written to ``path``; to be called before lengthy work.

    Args:
        path: the file to write.
        inputs: files that are read, and folders of such files, which must not be overwritten.
        flag: option that chooses another file.
    """
    if path.name in ("", "..") or os.path.isdir(path):
        raise UserError(f"cannot write {str(path)!r}: it names a folder, not a file")
    try:
        path.exists()  # raises OSError if the name is too long or a parent is a file
        folder = next(each for each in path.absolute().parents if each.exists())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    if not folder.is_dir():
        raise UserError(f"cannot write {path}: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: no permission to write in {folder}")
    for each in inputs:
        if same_file(path, each):
            raise UserError(f"{path} is also an input; choose another {flag}")
        if os.path.isdir(each) and leads_out(each, path) is None:
            raise UserError(f"{path} lies in {each}, which is also an input; choose another {flag}")


def file_version(path: Path) -> tuple[int, ...] | None:
    """What differs after a file was written to or replaced; None if there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Raise UserError if a file that is read several times within the context was changed meanwhile."""
    before = file_version(path)
    yield
    if file_version(path) != before:
        raise UserError(f"{path} was changed while it was read; run the command again")


def check_outputs(paths: Iterable[Path], inputs: Iterable[Path] = (), flag: str = "--output") -> None:
    """:func:`check_output` for several files, of which no two may be the same."""
    paths, inputs = list(paths), list(inputs)
    for index, path in enumerate(paths):
        check_output(path, inputs, flag)
        if any(same_file(path, other) for other in paths[:index]):
            raise UserError(f"{path} would be written twice; choose another {flag}")


def durable(file: BinaryIO) -> None:
    """Flush a file to disk; a full network disk may only fail here."""
    file.flush()
    os.fsync(file.fileno())


def copy_file(source: str | Path, path: str | Path) -> None:
    """Copy a file to ``path`` atomically."""
    with atomic_write(path) as beside, open(source, "rb") as whole, beside.open("wb") as file:
        shutil.copyfileobj(whole, file, 1 << 20)
        durable(file)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents; raises UserError on failure."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the folder {folder}: {error.strerror}") from None


def write_json(path: Path, values: dict) -> None:
    """Write a JSON file without escaping non-ASCII text."""
    write_text(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, escaping surrogates, which file names may contain."""
    with atomic_write(path) as beside:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")


def packed_or_plain(path: Path) -> Path:
    """``path``, or the compressed file if only that exists."""
    packed = path.with_name(path.name + PACKED)
    try:
        return packed if there(packed) and not there(path) else path
    except OSError:  # a name that is too long; reading will report it
        return path


def read_text(path: Path, what: str, encoding: str = "utf-8", most: int = MAX_WHOLE) -> str:
    """Read a whole text file, decompressed if its name ends in ``.bz2``, also of a packed folder.

    Args:
        path: the file.
        what: describes it in an error.
        encoding: of the text.
        most: maximum number of bytes.

    Raises:
        UserError: it cannot be read, or is not text, or has more bytes.
    """
    try:
        return io.TextIOWrapper(io.BytesIO(read_whole(path, most)), encoding).read()
    except UserError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"cannot read {what} {path}: {reason}") from None


def parse_json(text: str) -> Any:
    """Parse JSON; raises ValueError if it is invalid, too deep, too long, or has a key twice in an object.

    In memory, short values take some twenty times their bytes.
    """
    if len(text) > MAX_JSON:
        raise ValueError(f"it has more than {MAX_JSON >> 20} MiB")
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, of which Python would keep the last of equal keys."""
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {shown(double)} occurs twice")
    return values


class Busy(UserError):
    """Another process holds the lock of the folder."""


@contextmanager
def locked(folder: Path, doing: str) -> Iterator[tuple[int, ...]]:
    """Lock a folder, creating it if needed; ``doing`` describes the lock to other processes.

    The lock is released when the process ends for any reason. Yields the file descriptors to pass to a child
    process (``pass_fds``) that should hold the lock as well.

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
