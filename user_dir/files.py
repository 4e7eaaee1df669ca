"""Files written beside their place, then renamed: nothing half-written is left looking whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import UserError


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Yield where to write; what is there takes the place of ``path`` if the body succeeds, else is removed.

    Makes the folder. Raises UserError where the file system refuses.
    """
    path = Path(path)
    beside = path.with_name(path.name + ".tmp")
    try:
        make_folder(path.parent)
        try:
            yield beside
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None


def durable(file: BinaryIO) -> None:
    """Have what was written reach the disk; on a network's, this is where it may be refused."""
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
    """Write a text file in UTF-8."""
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")
