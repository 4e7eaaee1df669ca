"""The sources of a split, as specified in ``corpus.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..faults import find_fault
from ..schema import pattern, whole
from .description import Description
from .readers.columns import Table
from .readers.pairs import FORMATS, format_of

ONE_FILE = ("tmx", "segments", "columns")
"""Formats of which one file can have both languages."""


Lines = pattern(r"\d{1,15}-\d{1,15}", "FIRST-LAST, counted from 1") | None


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """What ``corpus.yaml`` may say of a source; ``file`` also stands for the names by side."""

    file: str | dict[str, str]
    format: Literal[FORMATS] | None = None
    reference: str | dict[str, str] | None = None
    lines: Lines = None
    translator: str | None = None
    columns: dict[str, whole(1, 1000)] | None = None
    separator: pattern(r"[^\n]+", "text of one line") = "\t"


@dataclass(frozen=True)
class Source:
    """Parallel files by side (language, or src, mt and pe), their format, and separate references if any.

    ``first`` and ``last`` are the numbers, from 1, of the pairs that are used; ``last`` None: to the end.
    ``translator``: whose reference is read from WMT's XML; None for the first. ``table``: of ``columns``.
    """

    names: dict[str, str]
    form: str
    references: dict[str, str] | None = None
    first: int = 1
    last: int | None = None
    translator: str | None = None
    table: Table | None = None


def held_out(description: Description) -> int | None:
    """N if every N-th pair of the cleaned training text is held out for valid; None if valid has files."""
    value = description.splits["valid"]
    return value["held_out"] if _is_held_out(value) else None


def sources_of(description: Description, split: str) -> list[Source]:
    """The sources of a split, read in this order; none if it is held out.

    Raises:
        UserError: its settings are invalid.
    """
    value = description.splits[split]
    if _is_held_out(value):
        every = value["held_out"]
        if split != "valid" or type(every) is not int or every < 2:
            raise description.error(
                "splits",
                f"splits: {split} is {value!r}, but only valid can be held_out, with a number of at least 2",
            )
        return []
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise description.error("splits", f"splits: {split} is empty; name its files")
    return [_source(description, split, entry) for entry in entries]


def pretraining_sources(description: Description) -> list[Source]:
    """The sources of the pretraining text: a file of sentences, or ``src`` and ``mt`` that form one line."""
    found = []
    for entry in description.pretraining:
        names = dict(entry) if isinstance(entry, dict) else {"file": entry}
        lines = names.pop("lines", None)
        if names.keys() not in ({"file"}, {"src", "mt"}) or find_fault(names, dict[str, str]):
            raise description.error(
                "pretraining", f"pretraining: {entry!r} must be a file name, or files named src and mt"
            )
        first, last = _first_and_last(description, "pretraining", entry, lines)
        found.append(Source(names, "lines", None, first, last))
    return found


def file_names(description: Description) -> list[str]:
    """All files or members that the text is read from, without duplicates."""
    names = [description.wordpiece] if description.wordpiece else []
    by_split = [sources_of(description, split) for split in description.splits]
    for source in (source for sources in (pretraining_sources(description), *by_split) for source in sources):
        names += [*source.names.values(), *(source.references or {}).values()]
    return list(dict.fromkeys(names))


def _is_held_out(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"held_out"}


def _source(description: Description, split: str, entry: Any) -> Source:
    def fail(complaint: str):
        return description.error("splits", f"splits: {split} is {entry!r}, {complaint}")

    mark, triplets = description.placeholder, description.triplets
    each = "each of src, mt, pe" if triplets else "each language"
    unnamed = f"but must be a file name with {mark} in it, or a name for {each}"
    if not isinstance(entry, (str, dict)):
        raise fail(unnamed)
    settings = dict(entry) if isinstance(entry, dict) else {"file": entry}
    if "file" not in settings:
        settings["file"] = {side: settings.pop(side) for side in description.sides if side in settings}
    if fault := find_fault(settings, Entry):
        raise fail(f"but {fault.message}")
    given = msgspec.convert(settings, Entry)
    names = _sides(description, given.file)
    if names is None:
        raise fail(unnamed)
    form = given.format or format_of(next(iter(names.values())))
    if triplets and (form != "lines" or given.reference is not None):
        raise fail("but triplets are three files of lines, without references: pe is the reference")
    alike = len(set(names.values())) < (2 if triplets else len(names))  # what is right is mt and pe
    if alike and form not in ONE_FILE:
        raise fail(f"but must have {mark} in it")
    if form in ("tmx", "columns") and not alike:
        raise fail(f"but the format {form} has both languages in a single file")
    if (form == "columns") != (given.columns is not None):
        raise fail("but columns: {LANGUAGE: NUMBER, …} and format: columns belong together")
    table = None
    if given.columns is not None:
        if set(given.columns) != set(description.languages) or len(set(given.columns.values())) < 2:
            raise fail("but columns must be another number for each language")
        table = Table(tuple(given.columns[each] for each in description.languages), given.separator)
    if given.translator is not None and form != "segments":
        raise fail("but a translator is a name in WMT's XML")
    references = None if given.reference is None else _sides(description, given.reference)
    if given.reference is not None and (references is None or split == "train"):
        raise fail("but a reference must be a file name with {language} in it, and not for train")
    first, last = _first_and_last(description, "splits", entry, given.lines)
    return Source(names, form, references, first, last, given.translator, table)


def _sides(description: Description, names: str | dict[str, str]) -> dict[str, str] | None:
    """Side → file name, from a name with ``{language}`` in it or from a mapping; None if sides differ."""
    if isinstance(names, str):
        return {each: names.replace(description.placeholder, each) for each in description.sides}
    return names if set(names) == set(description.sides) else None


def _first_and_last(description: Description, key: str, entry: Any, lines: Any) -> tuple[int, int | None]:
    """First and last line of ``FIRST-LAST``; all lines if None."""
    if lines is None:
        return 1, None
    first, last = (0, 0) if find_fault(lines, Lines) else map(int, lines.split("-"))
    if not 1 <= first <= last:
        raise description.error(key, f"{key}: the lines of {entry!r} must be FIRST-LAST, counted from 1")
    return first, last
