"""The sources of a split, as specified in ``corpus.yaml``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .description import Description
from .readers import FORMATS, Table, format_of

ONE_FILE = ("tmx", "segments", "columns")
"""Formats of which one file can have both languages."""


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
    return value["held_out"] if isinstance(value, dict) and value.keys() == {"held_out"} else None


def sources_of(description: Description, split: str) -> list[Source]:
    """The sources of a split, read in this order; none if it is held out.

    Raises:
        UserError: its settings are invalid.
    """
    value = description.splits[split]
    if isinstance(value, dict) and value.keys() == {"held_out"}:
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
        settings = dict(entry) if isinstance(entry, dict) else {"file": entry}
        first, last = _lines(description, "pretraining", entry, settings.pop("lines", None))
        if settings.keys() not in ({"file"}, {"src", "mt"}) or not _all_names(settings.values()):
            raise description.error(
                "pretraining", f"pretraining: {entry!r} must be a file name, or files named src and mt"
            )
        found.append(Source(settings, "lines", None, first, last))
    return found


def file_names(description: Description) -> list[str]:
    """All files or members that the text is read from, without duplicates."""
    names = [description.wordpiece] if description.wordpiece else []
    by_split = [sources_of(description, split) for split in description.splits]
    for source in (source for sources in (pretraining_sources(description), *by_split) for source in sources):
        names += [*source.names.values(), *(source.references or {}).values()]
    return list(dict.fromkeys(names))


def _source(description: Description, split: str, entry: Any) -> Source:
    def fail(complaint: str):
        return description.error("splits", f"splits: {split} is {entry!r}, {complaint}")

    mark = description.placeholder
    each = "each of src, mt, pe" if description.triplets else "each language"
    settings = dict(entry) if isinstance(entry, dict) else {"file": entry}
    first, last = _lines(description, "splits", entry, settings.pop("lines", None))
    form = settings.pop("format", None)
    references = settings.pop("reference", None)
    translator = settings.pop("translator", None)
    table = _table(description, split, entry, settings.pop("columns", None), settings.pop("separator", "\t"))
    names = settings.pop("file", None)
    if names is None:
        names = {side: settings.pop(side, None) for side in description.sides}
    if settings:
        raise fail(f"with unknown {', '.join(map(repr, settings))}")
    names = _sides(description, names)
    if names is None:
        raise fail(f"but must be a file name with {mark} in it, or a name for {each}")
    form = form or format_of(next(iter(names.values())))
    if form not in FORMATS:
        raise fail(f"with the format {form!r}; choose from {', '.join(FORMATS)}")
    if description.triplets and (form != "lines" or references is not None):
        raise fail("but triplets are three files of lines, without references: pe is the reference")
    alike = len(set(names.values())) < len(names)
    if alike and form not in ONE_FILE:
        raise fail(f"but must have {mark} in it")
    if form in ("tmx", "columns") and not alike:
        raise fail(f"but the format {form} has both languages in a single file")
    if (form == "columns") != (table is not None):
        raise fail("but columns: {LANGUAGE: NUMBER, …} and format: columns belong together")
    if translator is not None and (form != "segments" or not isinstance(translator, str)):
        raise fail("but a translator is a name in WMT's XML, in quotes")
    if references is not None:
        references = _sides(description, references)
        if references is None or split == "train":
            raise fail("but a reference must be a file name with {language} in it, and not for train")
    return Source(names, form, references, first, last, translator, table)


def _sides(description: Description, names: Any) -> dict[str, str] | None:
    """Side → file name, from a name with ``{language}`` in it or from a mapping; None if neither."""
    if isinstance(names, str):
        return {each: names.replace(description.placeholder, each) for each in description.sides}
    if not isinstance(names, dict) or set(names) != set(description.sides):
        return None
    return names if _all_names(names.values()) else None


def _lines(description: Description, key: str, entry: Any, value: Any) -> tuple[int, int | None]:
    """First and last line of ``lines: FIRST-LAST``; all lines if it is not given."""
    if value is None:
        return 1, None
    found = re.fullmatch(r"(\d{1,15})-(\d{1,15})", value) if isinstance(value, str) else None
    first, last = map(int, found.groups()) if found else (0, 0)
    if not 1 <= first <= last:
        raise description.error(key, f"{key}: the lines of {entry!r} must be FIRST-LAST, counted from 1")
    return first, last


def _table(description: Description, split: str, entry: Any, columns: Any, separator: Any) -> Table | None:
    """The table of ``columns: {LANGUAGE: NUMBER, …}`` and ``separator``; None if there is none."""
    if columns is None:
        return None
    if (
        not isinstance(columns, dict)
        or set(columns) != set(description.languages)
        or not all(type(number) is int and 1 <= number <= 1000 for number in columns.values())
        or len(set(columns.values())) < 2
    ):
        raise description.error(
            "splits",
            f"splits: {split} is {entry!r}, but columns must be a number from 1 to 1,000 for each language",
        )
    if not isinstance(separator, str) or not separator or "\n" in separator:
        raise description.error("splits", f"splits: {split} is {entry!r}, but separator must be a text")
    return Table(tuple(columns[language] for language in description.languages), separator)


def _all_names(values: Iterable[Any]) -> bool:
    return all(isinstance(name, str) for name in values)
