"""Origins of a corpus's text: parallel text, or triplets for post-editing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from . import parallel_text, triplet_text
from .corpus import Corpus

Pairs = Iterator[tuple[str, str]]  # source, target


class Origin(Protocol):
    """The interface of an origin module; ``raw`` is the user's folder of raw files, if given."""

    def check(self, corpus: Corpus) -> None:
        """Raise UserError for invalid splits."""

    def inputs(self, corpus: Corpus, raw: Path | None) -> dict[str, str]:
        """Identify the inputs of the text, as JSON; downloads missing files."""

    def available(self, corpus: Corpus) -> bool:
        """Whether nothing needs to be downloaded."""

    def extract_members(self, corpus: Corpus, raw: Path | None, digests: dict[str, str], force: bool) -> None:
        """Extract the members that the pairs are read from."""

    def held_out(self, corpus: Corpus) -> int | None:
        """N if every N-th training pair is held out for valid; None if valid has its own text."""

    def pairs(self, corpus: Corpus, split: str, raw: Path | None, left_out: Counter) -> Pairs:
        """The sentence pairs of a split; ``left_out`` is increased by what is left out of them, by reason."""

    def references(self, corpus: Corpus, split: str, raw: Path | None) -> Pairs | None:
        """The sentence pairs to score a split against; None if they are the split itself."""


ORIGINS: dict[str, Origin] = {
    "parallel_text": parallel_text,
    "triplets": triplet_text,
}


def origin_of(corpus: Corpus) -> Origin:
    """The origin that ``corpus.yaml`` names, after it has validated the description."""
    name = corpus.description.origin
    if name not in ORIGINS:
        raise corpus.description.error("origin", f"unknown origin {name!r}; choose from {', '.join(ORIGINS)}")
    ORIGINS[name].check(corpus)
    return ORIGINS[name]
