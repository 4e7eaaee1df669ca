"""Types of plain data, such as that of a JSON or YAML file, and reading what fits them.

Types are those of msgspec. msgspec reads no file itself: its JSON and YAML keep the last of equal keys, and
have no limits (see :mod:`.io` and :mod:`.yaml_files`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from .errors import UserError, one_line
from .faults import MAX_NUMBER, find_fault
from .io import parse_json, read_text


def number(least: float = -MAX_NUMBER, most: float = MAX_NUMBER, tolerance: float = 0.0) -> Any:
    """A finite number from ``least`` to ``most``, which rounding may exceed by ``tolerance``.

    The bounds are what refuses NaN and ∞: msgspec's ``float`` takes them.
    """
    return Annotated[float, Meta(ge=least - tolerance, le=most + tolerance)]


def whole(least: int = 0, most: int = 2**63 - 1) -> Any:
    """A whole number from ``least`` to ``most``."""
    return Annotated[int, Meta(ge=least, le=most)]


def pattern(regex: str, description: str) -> Any:
    """Text that matches a regular expression as a whole; described as, for example, "a name"."""
    return Annotated[str, Meta(pattern=rf"\A(?:{regex})\Z", description=description)]


def read_object(path: Path, what: str, kind: Any, remedy: str) -> dict:
    """Read a JSON file that fits a type.

    Args:
        path: the file; it may be compressed, see :func:`~.io.read_text`.
        what: for messages, such as "a file of head statistics".
        kind: a Struct.
        remedy: for messages, such as "write it again with head_stats.py".

    Raises:
        UserError: the file cannot be read, is not JSON, or does not fit.
    """
    try:
        value = parse_json(read_text(path, what))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(
            f"{path} is not {what}, because it is not JSON: {one_line(error)}; {remedy}"
        ) from None
    found = find_fault(value, kind)
    require(path, what, () if found is None else [found.message], remedy)
    return value


def require(path: Path, what: str, found: Iterable[str], remedy: str) -> None:
    """Raise a UserError that names the first of the faults of a file, if there are any."""
    for message in found:
        raise UserError(f"{path} is not {what}: {message}; {remedy}")
