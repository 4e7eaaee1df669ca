"""What a split is read from, as ``corpus.yaml`` says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .description import Description
from .readers import FORMATS, format_of


@dataclass(frozen=True)
class Source:
    """Two files read side by side, named for each language, and those to score against, if others."""

    names: dict[str, str]
    form: str
    references: dict[str, str] | None = None


@dataclass(frozen=True)
class HeldOut:
    """Every so many-th pair of the training text that cleaning left is this split's instead."""

    every: int


def sources_of(description: Description, split: str) -> list[Source] | HeldOut:
    """What a split is read from, one after the other; a ``UserError`` says what cannot be understood."""
    value = description.splits[split]
    if isinstance(value, dict) and value.keys() == {"held_out"}:
        every = value["held_out"]
        if split != "valid" or not isinstance(every, int) or isinstance(every, bool) or every < 2:
            raise description.error(
                "splits",
                f"splits: {split} is {value!r}, but only valid can be held_out, every 2nd pair or rarer",
            )
        return HeldOut(every)
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise description.error("splits", f"splits: {split} is empty; name its files")
    return [_source(description, split, entry) for entry in entries]


def file_names(description: Description) -> list[str]:
    """Every file or member that some split is read from, each once."""
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
        raise fail(f"with an unknown {', '.join(map(repr, settings))}")
    names = _sides(description, names)
    if names is None:
        raise fail("but must be a file name with {language} in it, or a name for each language")
    form = form or format_of(next(iter(names.values())))
    if form not in FORMATS:
        raise fail(f"with the format {form!r}; there are {', '.join(FORMATS)}")
    alike = len(set(names.values())) == 1
    if alike != (form == "tmx"):
        wrong = "but must be one file, as TMX is" if form == "tmx" else "but must have {language} in it"
        raise fail(wrong)
    if references is not None:
        references = _sides(description, references)
        if references is None or split == "train":
            raise fail("but a reference is a file name with {language} in it, and train has none")
    return Source(names, form, references)


def _sides(description: Description, names: Any) -> dict[str, str] | None:
    """Language → file name, from a name with ``{language}`` in it or from a mapping; None if neither."""
    if isinstance(names, str):
        return {each: names.replace("{language}", each) for each in description.languages}
    if not isinstance(names, dict) or set(names) != set(description.languages):
        return None
    return names if all(isinstance(name, str) for name in names.values()) else None
