"""What is wrong with plain data: the place, such as ``heads[3].alpha``, the value, and what it must be.

msgspec finds the fault, but hides keys of mappings and the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from .io import shown

MAX_SHOWN = 80  # characters of a key in a message
MAX_CHOICES = 20  # keys that a message lists
MAX_NUMBER = 1e18  # of a measure without a limit of its own; its square fits float32

Steps = tuple[Any, ...]
"""Keys and indices that lead to a value."""


class Fault(NamedTuple):
    """What is wrong with some data, and the steps to where."""

    steps: Steps
    message: str


def find_fault(value: Any, kind: Any) -> Fault | None:
    """What is wrong with plain data of which a type is expected; None if it fits."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return _fault(value, kind, str(error))
    except UnicodeEncodeError:
        return Fault((), "one of its keys has half a character")
    return None


def _fault(value: Any, kind: Any, said: str) -> Fault:
    message, _, path = said.rpartition(" - at ")
    try:
        steps = _steps(value, kind, said, path) if message else ()
        found = _at(value, steps)
    except (LookupError, TypeError, AttributeError):  # a key of the file looks like a place
        message, steps, found = "", (), value
    message, place, expected = message or said, place_of(steps), _types_at(kind, steps)
    name = re.search(r"field `(.*)`", message, re.DOTALL)
    if name is not None and message.startswith("Object missing"):
        return Fault((*steps, name[1]), f"the key {place_of((*steps, name[1]))} is missing")
    if name is not None and message.startswith("Object contains"):
        known = [field.encode_name for each in expected for field in getattr(each, "fields", ())]
        choices = ", ".join(known[:MAX_CHOICES]) + (", …" if len(known) > MAX_CHOICES else "")
        inside = f" in {place}" if place else ""
        return Fault((*steps, name[1]), f"unknown key {shown(name[1])}{inside}; choose from {choices}")
    if path.startswith("`key`"):
        known = [_called(each.key_type) for each in _types_at(kind, steps[:-1]) if hasattr(each, "key_type")]
        inside, must = place_of(steps[:-1]) or "it", " or ".join(known) or "text"
        must += "" if isinstance(steps[-1], str) else "; write it in quotes"
        return Fault(steps, f"{inside} has the key {shown(steps[-1])}, which must be {must}")
    if not re.match(r"Expected `|Invalid enum|(Number|Integer) ", message):  # from __post_init__
        return Fault(steps, f"{place}: {message}" if place else message)
    must = " or ".join(dict.fromkeys(map(_called, expected)))
    return Fault(steps, f"{place or 'it'} is {shown(found)}, but must be {must}")


def _steps(value: Any, kind: Any, said: str, path: str) -> Steps:
    """The steps of msgspec's path, which hides keys of mappings; raises LookupError if it is none."""
    steps: Steps = ()
    tokens = path + ("[...]" if path.startswith("`key`") else "")
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", tokens):
        key = _culprit(value, kind, said, steps) if index == "..." else name or int(index)
        steps = (*steps, key)
    return steps


def _culprit(value: Any, kind: Any, said: str, steps: Steps) -> Any:
    """The key of the mapping at a place that msgspec means: without the others, it has the same fault."""
    for key, inner in _at(value, steps).items():
        try:
            msgspec.convert(_with(value, steps, {key: inner}), kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            if str(error) == said:
                return key
    raise LookupError


def _with(value: Any, steps: Steps, new: Any) -> Any:
    """A copy of some data with another value at a place."""
    if not steps:
        return new
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[steps[0]] = _with(value[steps[0]], steps[1:], new)
    return copy


def _at(value: Any, steps: Steps) -> Any:
    for step in steps:
        value = value[step]
    return value


def place_of(steps: Steps) -> str:
    """Steps for a message, such as ``heads[3].alpha``."""
    text = ""
    for step in steps:
        long = isinstance(step, str) and len(step) > MAX_SHOWN
        text += f"[{step}]" if type(step) is int else f".{step[:MAX_SHOWN]}…" if long else f".{step}"
    return text.removeprefix(".")


def _types_at(kind: Any, steps: Steps) -> list[inspect.Type]:
    """The types that a value may have at a place."""
    found = list(_members(inspect.type_info(kind)))
    for step in steps:
        inner = [_inner(each, step) for each in found]
        found = [member for each in inner if each is not None for member in _members(each)]
    return found


def _members(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _members(each)
    else:
        yield kind


def _inner(kind: inspect.Type, step: Any) -> inspect.Type | None:
    """The type behind a step into a value of a type."""
    if isinstance(kind, inspect.Metadata):
        return _inner(kind.type, step)
    if isinstance(kind, inspect.StructType):
        return next((field.type for field in kind.fields if field.encode_name == step), None)
    if isinstance(kind, inspect.TupleType):
        return kind.item_types[step]
    return getattr(kind, "value_type", getattr(kind, "item_type", None))


_NAMES = {
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.NoneType: "null",
    inspect.DictType: "a mapping",
    inspect.StructType: "a mapping",
    inspect.ListType: "a list",
    inspect.VarTupleType: "a list",
}


def _called(kind: inspect.Type) -> str:
    """A type for a message."""
    if isinstance(kind, inspect.Metadata):
        return (kind.extra_json_schema or {}).get("description") or _called(kind.type)
    if isinstance(kind, inspect.LiteralType):
        return f"{'one of ' if len(kind.values) > 1 else ''}{', '.join(map(str, kind.values))}"
    if isinstance(kind, inspect.TupleType):
        return f"a list of {len(kind.item_types)}"
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        called = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
        for word, limit in (("from", kind.ge), ("to", kind.le)):
            if limit is not None and abs(limit) < MAX_NUMBER:
                called += f" {word} {limit:,}".removesuffix(".0")
        return called
    return _NAMES[type(kind)] + (" that is not empty" if getattr(kind, "min_length", None) else "")
