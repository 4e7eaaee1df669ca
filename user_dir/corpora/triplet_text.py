"""Post-editing triplets: a source sentence, its machine translation, and the corrected translation.

A triplet corpus is a translation corpus whose source line is ``src [SEP] mt`` and whose target line is the
corrected translation, so that every fairseq command works on it (Correia and Martins 2019).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError
from . import parallel_text
from .corpus import Corpus
from .parallel_text import available, extract_members, held_out, inputs  # noqa: F401  as for any published text
from .readers.triplets import BETWEEN, joined, read_triplets, require_plain
from .split_sources import sources_of


def check(corpus: Corpus) -> None:
    """Raise UserError unless ``corpus.yaml`` specifies the three files of every split."""
    parallel_text.check(corpus)
    for split, steps in corpus.description.normalise.items():
        if isinstance(steps, list) and "punctuation" in steps:
            raise corpus.description.error(
                "normalise",
                f"normalise: {split}: punctuation differs between languages, and a source line of triplets "
                "has two; normalise the files beforehand",
            )


def pairs(corpus: Corpus, split: str, raw: Path | None, left_out: Counter) -> Iterator[tuple[str, str]]:
    """``src [SEP] mt`` and ``pe`` of every triplet of a split; raises UserError for a broken one."""
    for source in sources_of(corpus.description, split):
        paths = (parallel_text.path_of(corpus, source.names[side], raw) for side in corpus.description.sides)
        for src, mt, pe in parallel_text.within_lines(corpus, source, read_triplets(*paths), left_out):
            yield joined(src, mt), pe


def references(corpus: Corpus, split: str, raw: Path | None) -> None:
    """None: the reference is the post-edited translation."""


def machine_translation(line: str) -> str:
    """The part of a source line after the separator."""
    return line.partition(BETWEEN)[2]


def source_line(text: str, number: int, name: str) -> str:
    """``src`` and ``mt`` separated by a tab, as a source line; empty for an empty text.

    Raises:
        UserError: there is not exactly one tab, or a side is empty or contains a reserved symbol; with line
            ``number`` of ``name``.
    """
    if not text.strip():
        return ""
    where = f"{name}, line {number}" if name else f"line {number}"
    sides = text.split("\t")
    if len(sides) != 2:
        raise UserError(
            f"{where} has {len(sides) - 1} tabs; write the source sentence, a tab, and its translation"
        )
    for side in sides:
        require_plain(side, where)
    return joined(*sides)
