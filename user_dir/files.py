"""Files written beside their place, then renamed: nothing half-written is left looking whole."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import UserError


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, making its folder; raises UserError where that cannot be."""
    beside = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
