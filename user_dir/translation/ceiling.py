"""The best score that is possible: references sent through the pieces and back.

A model outputs pieces. Where these fold case, replace full-width marks or lack a character, not even a
perfect translation scores 100, and two corpora cannot be compared by their scores.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass

from ..corpora import Corpus
from ..corpora.binarised import binarised_lines
from ..errors import UserError
from ..io import shown, write_json
from .scored_split import ScoredSplit
from .text import join_pieces

LOW = 99.0
"""BLEU; a ceiling below it should be told wherever scores are."""


@dataclass(frozen=True)
class Ceiling:
    """BLEU of the references of a split through the pieces."""

    split: str  # its public name
    language: str  # target language
    bleu: float
    tokenizer: str  # sacrebleu's, as in its signature
    references: str  # whose they are
    example: str  # of a ``bleu`` below ``LOW`` a line that changes, and what becomes of it

    def __str__(self) -> str:
        told = f"a perfect translation of {self.split} into {self.language} scores {self.bleu:.2f} BLEU"
        return f"{told}, because in pieces {self.example}" if self.example else told


def corpus_ceilings(corpus: Corpus) -> list[Ceiling]:
    """The ceiling of each test set, or of ``valid`` if there is none, in each direction that is translated.

    They are also written to ``ceilings.json`` of the corpus. A language that sacrebleu cannot tokenize here
    is left out.
    """
    there, back = corpus.languages, corpus.languages[::-1]
    found = []
    for split in corpus.test_sets or ("valid",):
        for direction in [there] if corpus.description.triplets else [there, back]:
            try:
                found.append(ceiling_of(corpus, ScoredSplit(corpus, split, direction)))
            except UserError:  # evaluate.py names the package to install
                continue
    write_json(corpus.folder / "ceilings.json", {"ceilings": list(map(asdict, found))})
    return found


def ceiling_of(corpus: Corpus, split: ScoredSplit, left_out: Collection[int] = ()) -> Ceiling:
    """The ceiling of a split of a prepared corpus as an evaluation scores it, but sentences ``left_out``."""
    pieces = binarised_lines(corpus.bin, split.subset, corpus.languages, split.target)
    through = split.kept(list(map(join_pieces, pieces)), left_out)
    bleu, example = split.bleu_of(through, left_out), ""
    if bleu < LOW:
        pairs = zip(split.kept(split.references[0], left_out), split.natural(split.lines(through, left_out)))
        example = next((f"{shown(a)} becomes {shown(b)}" for a, b in pairs if a.split() != b.split()), "")
        if not corpus.description.wordpiece and corpus.description.normalization != "identity":
            example += f" (normalization: {corpus.description.normalization}; identity changes no character)"
    references = split.references_name if split.references_name.startswith("sacrebleu") else "the corpus's"
    tokenizer = split.bleu.tokenizer.signature()
    return Ceiling(split.name, split.target, round(bleu, 2), tokenizer, references, example)
