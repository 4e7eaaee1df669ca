"""Files that people write, or other programs: reading them ends in a value or a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError, one_line


def read_text(path: Path, what: str, encoding: str = "utf-8") -> str:
    """A file as text; ``what`` it is to be, for the ``UserError`` where it cannot be."""
    try:
        return path.read_text(encoding=encoding)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"cannot read {what} {path}: {reason}") from None


def parse_json(text: str) -> Any:
    """What JSON stands for; raises ValueError where it is none, or nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_yaml(path: Path) -> tuple[Any, yaml.Node | None]:
    """What a YAML file stands for, as plain data, and its nodes, which know their lines.

    Raises:
        UserError: the file cannot be read, or is not YAML of plain data.
    """
    text = read_text(path, "the YAML file")
    try:
        return yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    # ValueError: a date, or a number, that is none; TypeError: a key that can be none.
    except (yaml.YAMLError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{path} is not valid YAML: {one_line(error)}") from None
