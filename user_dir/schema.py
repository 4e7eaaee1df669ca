"""Checks plain data, such as that of a JSON file, against a description of what it may be.

A description is one of

- a :class:`Value`: what a single value may be;
- a list of one description: a list, each item of which fits it;
- a dict: an object with these keys, and no others. A key that ends in ``?`` may be missing; ``*`` describes
  all keys that are not named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Union

from .errors import UserError, one_line
from .io import parse_json, read_text, shown

MAX_SHOWN = 80  # characters of a key in a message
MAX_NUMBER = 1e18  # of a measure without a limit of its own; its square fits float32


@dataclass(frozen=True)
class Value:
    """What a value may be.

    Attributes:
        what: for messages, such as "a number from 0 to 1".
        fits: whether a value is that.
    """

    what: str
    fits: Callable[[Any], bool]

    def or_none(self) -> Value:
        """The same, or None."""
        return Value(f"{self.what} or null", lambda value: value is None or self.fits(value))


Description = Union[Value, list, dict]


class Fault(NamedTuple):
    """A value that does not fit: where it is, and what is wrong there."""

    place: str
    message: str


def is_number(value: Any) -> bool:
    """Whether a value is an int or a finite float; truth values are neither."""
    return type(value) in (int, float) and abs(value) < 1e300  # also excludes NaN


def number(least: float = -MAX_NUMBER, most: float = MAX_NUMBER, tolerance: float = 0.0) -> Value:
    """A finite number from ``least`` to ``most``, which rounding may exceed by ``tolerance``."""
    bounds = [
        f" {word} {bound:g}" for word, bound in (("from", least), ("to", most)) if abs(bound) < MAX_NUMBER
    ]
    return Value(
        "a number" + "".join(bounds),
        lambda value: is_number(value) and least - tolerance <= value <= most + tolerance,
    )


def whole(least: int = 0, most: int = 2**63 - 1) -> Value:
    """A whole number from ``least`` to ``most``."""
    return Value(
        f"a whole number from {least:,} to {most:,}",
        lambda value: type(value) is int and least <= value <= most,
    )


def one_of(choices: Collection[str]) -> Value:
    """One of some strings."""
    return Value(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices)


TEXT = Value("a string", lambda value: isinstance(value, str))
ANYTHING = Value("anything", lambda value: True)


def faults(value: Any, expected: Description, place: str = "") -> Iterator[Fault]:
    """Every fault of a value, with the place of each, such as ``heads[3].alpha``."""
    if isinstance(expected, Value):
        if not expected.fits(value):
            yield Fault(place, f"{place} is {shown(value)}, not {expected.what}")
    elif isinstance(expected, list):
        if not isinstance(value, list):
            yield Fault(place, f"{place} is {shown(value)}, not a list")
        else:
            for index, item in enumerate(value):
                yield from faults(item, expected[0], f"{place}[{index}]")
    elif not isinstance(value, dict):
        yield Fault(place, f"{place or 'it'} is {shown(value)}, not an object with named values")
    else:
        yield from _faults_of_object(value, expected, place)


def _faults_of_object(value: dict, expected: dict, place: str) -> Iterator[Fault]:
    inside = f"{place}." if place else ""
    names = {key.removesuffix("?"): key for key in expected if key != "*"}
    for name, key in names.items():
        if name in value:
            yield from faults(value[name], expected[key], inside + name)
        elif name == key:
            yield Fault(inside + name, f"{inside}{name} is missing")
    for name in value.keys() - names.keys():
        if "*" in expected:
            yield from faults(value[name], expected["*"], inside + _named(name))
        else:
            yield Fault(inside + _named(name), f"{inside}{shown(name)} is unknown")


def _named(name: str) -> str:
    """A key for a place: as it is, unless it is long."""
    return name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…"


def read_object(path: Path, what: str, expected: Description, remedy: str) -> dict:
    """Read a JSON file that fits a description.

    Args:
        path: the file; it may be compressed, see :func:`~.io.read_text`.
        what: for messages, such as "a file of head statistics".
        expected: the description, a dict.
        remedy: for messages, such as "write it again with head_stats.py".

    Raises:
        UserError: the file cannot be read, is not JSON, or does not fit; the message names three faults.
    """
    try:
        value = parse_json(read_text(path, what))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(
            f"{path} is not {what}, because it is not JSON: {one_line(error)}; {remedy}"
        ) from None
    require(path, what, faults(value, expected), remedy)
    return value


def require(path: Path, what: str, found: Iterable[Fault], remedy: str) -> None:
    """Raise a UserError that names up to three faults of a file, if there are any."""
    found = list(dict.fromkeys(each.message for each in islice(found, 3)))
    if found:
        raise UserError(f"{path} is not {what}: {'; '.join(found)}; {remedy}")
