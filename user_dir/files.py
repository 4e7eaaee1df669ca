"""Files of the project: where they lie, reading them with one clear error, writing them whole or not at all.

Files that the project wrote are trusted; one with unexpected content ends in one sentence that names it.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import secrets
import shutil
import statistics
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from .errors import UserError, one_line

PLUGIN = Path(__file__).resolve().parent
"""The folder that ``--user-dir`` names."""
_ROOT = PLUGIN.parent
IN_CHECKOUT = (_ROOT / "pyproject.toml").is_file()
ROOT = _ROOT if IN_CHECKOUT else Path()
"""The folder that paths in configs and records are relative to: the checkout, else the working directory."""
DATA = ROOT / "data"
"""The folder of the corpora."""
SHARED = ROOT if IN_CHECKOUT else Path(__file__).parent / "shared"
"""The folder of files that come with the project: descriptions of corpora and models in data/, configs/."""


def command_words(name: str) -> list[str]:
    """The words that run the command ``name`` here: the package's or, in a checkout, the script."""
    if not IN_CHECKOUT:
        return ["adaptively-sparse", name]
    path, here = ROOT / "scripts" / f"{name}.py", Path.cwd()
    return ["python", str(path.relative_to(here) if here in path.parents else path)]


def shown(value: Any) -> str:
    """A value for an error message: its repr, cut if long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a file raises if it is missing, or compressed and damaged."""
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # of compressed files, by extension


def open_binary(path: Path) -> BinaryIO:
    """Open a file to read its bytes, decompressed if its extension is one of :data:`OPENERS`."""
    return OPENERS.get(path.suffix, open)(path, "rb")


def read_text(path: str | Path, what: str = "the file") -> str:
    """Read a whole text file in UTF-8, decompressed by its name; ``what`` describes it in an error.

    Raises:
        UserError: it cannot be read, is damaged, or is not text.
    """
    try:
        with open_binary(Path(path)) as file:
            return file.read().decode()
    except (*UNREADABLE, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged or not text"
        raise UserError(f"cannot read {what} {path}: {reason}") from None


def read_json(path: str | Path, what: str = "the file") -> Any:
    """Read a JSON file; raises UserError if it cannot be read or is not JSON."""
    try:
        return json.loads(read_text(path, what))
    except json.JSONDecodeError as error:
        raise UserError(f"cannot read {what} {path}: it is not JSON: {error}") from None


def read_yaml(path: str | Path, what: str = "the file") -> Any:
    """Read a YAML file as plain data; raises UserError, with the line, if it is not YAML."""
    import yaml

    try:
        return yaml.safe_load(read_text(path, what))
    except yaml.YAMLError as error:
        raise UserError(f"cannot read {what} {path}: it is not YAML: {one_line(error)}") from None


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Yield a file to write to, which replaces ``path`` if the body succeeds and is removed otherwise.

    It has a unique name, ``NAME.RANDOM.tmp``, in the folder of ``path``, which is created if need be.

    Raises:
        UserError: the file system refuses.
    """
    path = Path(path)
    beside = path.with_name(f"{path.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("xb") as file:  # unlike tempfile, respects the umask
                yield file
                file.flush()
                os.fsync(file.fileno())  # a full network disk may only fail here
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8, escaping surrogates, which file names may contain."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def write_json(path: str | Path, values: Any) -> None:
    """Write a JSON file without escaping non-ASCII text."""
    write_text(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def copy_file(source: str | Path, path: str | Path) -> None:
    """Copy a file to ``path`` atomically."""
    with atomic_write(path) as file, open(source, "rb") as whole:
        shutil.copyfileobj(whole, file, 1 << 20)


def check_output(path: Path, inputs: Iterable[Path] = (), flag: str = "--output") -> None:
    """Raise UserError unless a file can be written to ``path``; to be called before lengthy work.

    Args:
        path: the file to write.
        inputs: files that are read, which must not be overwritten.
        flag: option that chooses another file.
    """
    if path.name in ("", "..") or path.is_dir():
        raise UserError(f"cannot write {str(path)!r}: it names a folder, not a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise UserError(f"cannot write {path}: {folder} is no folder to write in")
    if any(path.exists() and file.exists() and path.samefile(file) for file in inputs):
        raise UserError(f"{path} is also an input; choose another {flag}")


_locks: list[int] = []  # descriptors


def _close_locks() -> None:
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_close_locks)  # else workers keep the locks of a killed process


@contextmanager
def locked(folder: Path, doing: str) -> Iterator[None]:
    """Lock a folder, creating it if needed; ``doing`` says in the error what the other process does.

    The lock is released when the process ends for any reason. Raises UserError if another process holds it.
    """
    import fcntl  # not available on Windows

    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UserError(f"another run is {doing} {folder}; wait until it ends") from None
    except OSError:
        pass  # a file system without locks, such as some network file systems
    _locks.append(lock)
    try:
        yield
    finally:
        if lock in _locks:
            _locks.remove(lock)
            os.close(lock)


def markdown(rows: Iterable[Sequence], headers: Sequence[str]) -> str:
    """A Markdown table of cells that are shown verbatim."""
    from tabulate import tabulate

    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)


def mean_and_deviation(values: Iterable[float | None], form: str) -> str:
    """``mean ± standard deviation``; the mean alone if values do not differ, nothing if one is missing."""
    values = list(values)
    if any(value is None for value in values):
        return ""
    deviation = statistics.stdev(values) if len(set(values)) > 1 else None
    return plus_minus(statistics.fmean(values), deviation, form)


def plus_minus(mean: float, deviation: float | None, form: str) -> str:
    """``mean ± deviation``, or the mean alone if the deviation is None; only the mean is signed."""
    if deviation is None:
        return format(mean, form)
    return f"{format(mean, form)} ± {format(deviation, form.removeprefix('+'))}"


def significance(p: float) -> str:
    """A p-value with three decimals, but never 0."""
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"
