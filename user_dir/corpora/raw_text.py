"""The sentences of a corpus as published: parallel text, triplets for post-editing, text for pretraining.

Triplets are a translation corpus whose source line is ``src [SEP] mt`` and whose target line is the corrected
translation, so that every fairseq command works on them (Correia and Martins 2019).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

from ..errors import UserError
from .description import Description
from .raw_files import RawFiles
from .readers import read_lines
from .readers.left_out import BLANK, OUTSIDE
from .readers.pairs import read_pairs
from .readers.triplets import joined, read_triplets, require_plain
from .split_sources import Source, pretraining_sources, sources_of

ORIGINS = ("parallel_text", "triplets")
Pairs = Iterator[tuple[str, str]]  # source, target
Item = TypeVar("Item")


def check(description: Description) -> None:
    """Raise UserError for an unknown origin, and for settings that do not suit it."""
    if description.origin not in ORIGINS:
        known = ", ".join(ORIGINS)
        raise description.error("origin", f"unknown origin {description.origin!r}; choose from {known}")
    for split in description.test_sets if description.tokenised else ():
        if not all(source.references for source in sources_of(description, split)):
            raise description.error(
                "tokenised", f"tokenised: {split} requires a reference, the untokenised text to score against"
            )
    for split, steps in description.normalise.items() if description.triplets else ():
        if isinstance(steps, list) and "punctuation" in steps:
            raise description.error(
                "normalise",
                f"normalise: {split}: punctuation differs between languages, and a source line of triplets "
                "has two; normalise the files beforehand",
            )


def pairs(files: RawFiles, split: str, left_out: Counter) -> Pairs:
    """The sentence pairs of a split; ``left_out`` is increased by what is left out, by reason.

    Raises:
        UserError: the files do not match, or a triplet is broken.
    """
    for source in sources_of(files.corpus.description, split):
        yield from _within_lines(files, source, _read(files, source, source.names, left_out), left_out)


def references(files: RawFiles, split: str) -> Pairs | None:
    """The pairs to score a split against; None if they are the split itself."""
    sources = sources_of(files.corpus.description, split)
    if not any(source.references for source in sources):
        return None
    told = Counter()  # by the split
    return (
        pair
        for source in sources
        for pair in _within_lines(
            files, source, _read(files, source, source.references or source.names, told), told
        )
    )


def pretraining_lines(files: RawFiles, left_out: Counter) -> Iterator[str]:
    """Sentences, or ``src [SEP] mt``, without empty lines; ``left_out`` as for :func:`pairs`."""
    for source in pretraining_sources(files.corpus.description):
        for line in _within_lines(files, source, _read_pretraining(files, source), left_out):
            if line:
                yield line
            else:
                left_out[BLANK] += 1


def _read(files: RawFiles, source: Source, names: dict[str, str], left_out: Counter) -> Pairs:
    description = files.corpus.description
    paths = [files.path_of(names[side]) for side in description.sides]
    if description.triplets:
        return ((joined(src, mt), pe) for src, mt, pe in read_triplets(*paths))
    return read_pairs(*paths, description.languages, source.form, left_out, source.translator, source.table)


def _read_pretraining(files: RawFiles, source: Source) -> Iterator[str]:
    paths = {side: files.path_of(name) for side, name in source.names.items()}
    if "file" not in paths:
        yield from (joined(*pair) for pair in read_triplets(paths["src"], paths["mt"]))
        return
    for number, line in enumerate(read_lines(paths["file"]), start=1):
        if line.strip():
            require_plain(line, f"{paths['file']}, line {number}")
        yield line.strip()


def _within_lines(
    files: RawFiles, source: Source, items: Iterator[Item], left_out: Counter
) -> Iterator[Item]:
    """The lines that ``source`` names; reads to the end, so that files of unequal length are noticed."""
    number = 0
    for number, item in enumerate(items, start=1):
        if source.first <= number <= (source.last or number):
            yield item
        else:
            left_out[OUTSIDE] += 1
    if source.last is not None and number < source.last:
        names = ", ".join(source.names.values())
        raise UserError(
            f"{files.corpus.description.path} asks for lines {source.first}-{source.last} of {names}, "
            f"which has {number:,} lines"
        )
