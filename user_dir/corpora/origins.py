"""Where the text of a corpus comes from: files that were published, or a grammar that makes it up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from . import parallel_text, toy_grammar
from .corpus import Corpus

Pairs = Iterator[tuple[str, str]]  # source, target


class Origin(Protocol):
    """A module with these functions; ``raw`` is the user's folder of raw files, if one was given."""

    def check(self, corpus: Corpus) -> None:
        """Raise a ``UserError`` over splits and options that it cannot read."""

    def inputs(self, corpus: Corpus, raw: Path | None) -> dict[str, str]:
        """What the text is made from, as JSON; fetches what is missing."""

    def available(self, corpus: Corpus) -> bool:
        """Whether there is nothing to fetch."""

    def extract_members(self, corpus: Corpus, raw: Path | None, digests: dict[str, str], force: bool) -> None:
        """Take out of archives what the pairs are read from."""

    def held_out(self, corpus: Corpus) -> int | None:
        """Every how many-th training pair goes to valid; None where that has a text of its own."""

    def pairs(self, corpus: Corpus, split: str, raw: Path | None) -> Pairs:
        """The sentences of a split."""

    def references(self, corpus: Corpus, split: str, raw: Path | None) -> Pairs | None:
        """The sentences to score a split against; None where they are its own."""


ORIGINS: dict[str, Origin] = {"parallel_text": parallel_text, "toy_grammar": toy_grammar}


def origin_of(corpus: Corpus) -> Origin:
    """The origin that ``corpus.yaml`` names, once it has checked what the rest of it says."""
    name = corpus.description.origin
    if name not in ORIGINS:
        raise corpus.description.error(
            "origin", f"there is no origin {name!r}; the known ones are {', '.join(ORIGINS)}"
        )
    ORIGINS[name].check(corpus)
    return ORIGINS[name]
