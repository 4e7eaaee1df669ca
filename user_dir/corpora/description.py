"""``corpus.yaml``, the description of a corpus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ..errors import UserError
from ..files import read_yaml
from .readers import FORMATS, ONE_FILE, Source, format_of

EVERY = "every"  # the key of ``normalise`` for steps of all splits
TRIPLET_SIDES = ("src", "mt", "pe")
"""The files of post-editing triplets: source, machine translation, post-edited translation."""
ENDINGS = r"\.(tgz|tar|tar\.gz|tbz2?|tar\.bz2|txz|tar\.xz|zip)"  # of archives

Code = Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_]{0,49}$")]  # the extension of files
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]  # the limit is sentencepiece's
Two = Annotated[list[Positive], Meta(min_length=2, max_length=2)]
Tokenizer = Annotated[str, Meta(pattern=r"(^|/)(vocab\.txt|tokenizer\.json)$")]
Name = Annotated[str, Meta(pattern="^[^/.][^/]*$")]  # of a split, and part of the names of its files
Pair = Annotated[dict[Literal["src", "mt"], str], Meta(min_length=2)]
Step = Literal["punctuation", "non_printing", "lower_case"]


class Limit(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the lengths of a pair, counted in some unit."""

    min: Positive = 1
    max: Positive | Two | None = None  # of both sides, or [source, target]
    ratio: Annotated[float, Meta(ge=1)] | None = None


class Clean(Struct, frozen=True, forbid_unknown_fields=True):
    """Which pairs of training text are left out."""

    moses_tokens: Limit | None = None
    pieces: Limit | None = None
    near_duplicates: bool = False


class Download(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a raw file is published, and its checksums: of an archive as it is, else after decompression."""

    url: str | list[str]  # or mirrors, tried in this order
    size: int | None = None  # bytes as downloaded, for people who read the file
    sha256: str | None = None
    sha1: str | None = None
    md5: str | None = None

    @property
    def urls(self) -> list[str]:
        """The mirrors."""
        return [self.url] if isinstance(self.url, str) else self.url


class Description(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A ``corpus.yaml``.

    ``splits`` maps ``train``, ``valid`` and the public name of each test set, in order, to a source or a list
    of sources. Instead, any split but ``train`` may be ``{held_out: N}``.
    """

    title: str
    languages: tuple[Code, Code]  # source, target
    splits: dict[Name, Any]
    origin: Literal["parallel_text", "triplets"] = "parallel_text"
    pieces_of: str | None = None  # another corpus whose pieces are used instead of learning them
    wordpiece: Tokenizer | None = None  # of a BERT whose pieces are used
    pretraining: list[str | Pair] = []  # text for masked language modelling
    vocabulary_size: Positive | None = None  # entries; None: pieces.suitable_size
    licence: str = ""
    citation: str = ""
    character_coverage: Annotated[float, Meta(gt=0, le=1)] = 1.0
    split_digits: bool = False  # every digit a piece
    normalization: Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"] = "nmt_nfkc"
    clean: Clean = Clean()
    normalise: dict[str, list[Step]] = {}  # by split, or EVERY
    tokenised: bool = False
    case: Literal["from_translation"] | None = None  # of triplets, see post_editing/scoring.py
    downloads: dict[str, Download] = {}
    path: Path | None = None  # of the file itself, not a key in it

    @property
    def triplets(self) -> bool:
        """Whether the corpus consists of post-editing triplets: a source line is ``src [SEP] mt``."""
        return self.origin == "triplets"

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of the sides that a split has files for: its languages, or :data:`TRIPLET_SIDES`."""
        return TRIPLET_SIDES if self.triplets else self.languages

    @property
    def subsets(self) -> dict[str, str]:
        """Public name of every split → its fairseq subset: train, valid, test, test1, test2, …"""
        tests = [name for name in self.splits if name not in ("train", "valid")]
        numbered = {name: f"test{number or ''}" for number, name in enumerate(tests)}
        return {"train": "train", "valid": "valid", **numbered}

    @property
    def held_out(self) -> dict[str, int]:
        """Split → N, for every split that gets one in N pairs of the cleaned training text."""
        settings = {name: value for name, value in self.splits.items() if isinstance(value, dict)}
        return {name: value["held_out"] for name, value in settings.items() if value.keys() == {"held_out"}}

    def sources(self, split: str) -> list[Source]:
        """The sources of a split, read in this order; none if it is held out.

        Raises:
            ValueError: a source does not fit; the message names it.
        """
        if split in self.held_out:
            return []
        entries = self.splits[split]
        return [self._source(split, entry) for entry in (entries if isinstance(entries, list) else [entries])]

    def steps(self, split: str) -> tuple[str, ...]:
        """The steps of normalisation for a split, in order; empty for most corpora."""
        return tuple(self.normalise.get(split, self.normalise.get(EVERY, ())))

    def files(self) -> list[str]:
        """All files, or members of archives, that the text is read from, without duplicates."""
        names = [self.wordpiece] if self.wordpiece else []
        for entry in self.pretraining:
            names += [entry] if isinstance(entry, str) else entry.values()
        for source in (source for split in self.splits for source in self.sources(split)):
            names += [*source.file.values(), *(source.reference or {}).values()]
        return list(dict.fromkeys(names))

    def _source(self, split: str, entry: Any) -> Source:
        where = f"splits: {split} is {entry!r}, but"
        settings = dict(entry) if isinstance(entry, dict) else {"file": entry}
        if "file" not in settings:
            settings["file"] = {side: settings.pop(side) for side in self.sides if side in settings}
        mark = "{side}" if self.triplets else "{language}"
        for key in ("file", "reference"):
            if isinstance(name := settings.get(key), str):
                settings[key] = {side: name.replace(mark, side) for side in self.sides}
        first = next(iter(settings["file"].values()), "") if isinstance(settings["file"], dict) else ""
        settings.setdefault("format", "triplets" if self.triplets else format_of(str(first)))
        try:
            source = msgspec.convert(settings, Source)
        except msgspec.ValidationError as error:
            raise ValueError(f"{where} {error}") from None
        one_file = len(set(source.file.values())) == 1
        if source.format not in FORMATS:
            raise ValueError(f"{where} the formats are {', '.join(FORMATS)}")
        named, columns = (source.file, source.reference or source.file), source.columns
        if any(names.keys() != set(self.sides) for names in named) or one_file != (source.format in ONE_FILE):
            raise ValueError(f"{where} must name a file for each of {', '.join(self.sides)}")
        if columns and (columns.keys() != set(self.sides) or len(set(columns.values())) < len(columns)):
            raise ValueError(f"{where} must name another column for each of {', '.join(self.sides)}")
        if (source.format == "columns") != (columns is not None):
            raise ValueError(f"{where} columns: {{LANGUAGE: NUMBER, …}} and format: columns belong together")
        return source


def split_name(name: str) -> tuple[str, str | None]:
    """``folder/x.tgz/inner/file`` → ``folder/x.tgz`` and ``inner/file``; None if it is no archive."""
    archive = re.search(ENDINGS + "/", name)
    return (name[: archive.end() - 1], name[archive.end() :]) if archive else (name, None)


def is_archive(name: str) -> bool:
    """Whether a file name is that of an archive whose members are extracted."""
    return re.search(ENDINGS + "$", name) is not None


def read_description(path: Path) -> Description:
    """Read and check a ``corpus.yaml``; UserError names the file, the key, and what is wrong."""
    values = read_yaml(path, "the description of a corpus")
    try:
        description = msgspec.structs.replace(msgspec.convert(values, Description), path=path)
        for complaint in _complaints(description):
            raise ValueError(complaint)
        return description
    except ValueError as error:  # also msgspec's
        raise UserError(f"{path}: {error}") from None


def _complaints(description: Description) -> Iterator[str]:
    splits = description.splits
    if not {"train", "valid"} <= splits.keys():
        yield f"splits: expected train and valid, but there are {', '.join(splits)}"
    if len(set(description.languages)) < 2:
        yield f"languages: {description.languages[0]!r} is named twice"
    keys = ("pieces_of", "wordpiece", "vocabulary_size")
    if len(chosen := [key for key in keys if getattr(description, key) is not None]) > 1:
        yield f"{' and '.join(chosen)} exclude each other"
    for name, every in description.held_out.items():
        if type(every) is not int or every < 2:
            yield f"splits: {name} has held_out {every!r}, but it must be a number of at least 2"
    for name, subset in description.subsets.items():
        if re.fullmatch(r"test\d*", name) and subset != name:
            yield f"splits: {name} is fairseq's name of another test set, and this one is its {subset}"
    for name in splits:
        description.sources(name)
    for name in description.normalise.keys() - splits.keys() - {EVERY}:
        yield f"normalise: splits has no {name}"
    for name in splits.keys() - {"train", "valid"} if description.tokenised else ():
        if not all(source.reference for source in description.sources(name)):
            yield f"tokenised: {name} requires a reference, the untokenised text to score against"
