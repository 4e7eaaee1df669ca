"""The sources of a split, as specified in ``corpus.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .description import Description
from .readers import FORMATS, format_of


@dataclass(frozen=True)
class Source:
    """Two parallel files by language, their format, and separate references if there are any."""

    names: dict[str, str]
    form: str
    references: dict[str, str] | None = None


@dataclass(frozen=True)
class HeldOut:
    """A split that consists of every N-th pair of the cleaned training text."""

    every: int


def sources_of(description: Description, split: str) -> list[Source] | HeldOut:
    """The sources of a split, read in this order; raises UserError for invalid settings."""
    value = description.splits[split]
    if isinstance(value, dict) and value.keys() == {"held_out"}:
        every = value["held_out"]
        if split != "valid" or not isinstance(every, int) or isinstance(every, bool) or every < 2:
            raise description.error(
                "splits",
                f"splits: {split} is {value!r}, but only valid can be held_out, with a number of at least 2",
            )
        return HeldOut(every)
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise description.error("splits", f"splits: {split} is empty; name its files")
    return [_source(description, split, entry) for entry in entries]


def file_names(description: Description) -> list[str]:
    """All files or members that splits are read from, without duplicates."""
    names: dict[str, None] = {}
    for split in description.splits:
        sources = sources_of(description, split)
        for source in [] if isinstance(sources, HeldOut) else sources:
            for side in (source.names, source.references or {}):
                names.update(dict.fromkeys(side.values()))
    return list(names)


def _source(description: Description, split: str, entry: Any) -> Source:
    def fail(complaint: str):
        return description.error("splits", f"splits: {split} is {entry!r}, {complaint}")

    settings = dict(entry) if isinstance(entry, dict) else {"file": entry}
    form = settings.pop("format", None)
    references = settings.pop("reference", None)
    names = settings.pop("file", None)
    if names is None:
        names = {language: settings.pop(language, None) for language in description.languages}
    if settings:
        raise fail(f"with unknown {', '.join(map(repr, settings))}")
    names = _sides(description, names)
    if names is None:
        raise fail("but must be a file name with {language} in it, or a name for each language")
    form = form or format_of(next(iter(names.values())))
    if form not in FORMATS:
        raise fail(f"with the format {form!r}; choose from {', '.join(FORMATS)}")
    alike = len(set(names.values())) == 1
    if alike != (form == "tmx"):
        wrong = "but TMX must be a single file" if form == "tmx" else "but must have {language} in it"
        raise fail(wrong)
    if references is not None:
        references = _sides(description, references)
        if references is None or split == "train":
            raise fail("but a reference must be a file name with {language} in it, and not for train")
    return Source(names, form, references)


def _sides(description: Description, names: Any) -> dict[str, str] | None:
    """Language → file name, from a name with ``{language}`` in it or from a mapping; None if neither."""
    if isinstance(names, str):
        return {each: names.replace("{language}", each) for each in description.languages}
    if not isinstance(names, dict) or set(names) != set(description.languages):
        return None
    return names if all(isinstance(name, str) for name in names.values()) else None
