"""The best score that is possible: references sent through the pieces and back.

A model outputs pieces. Where these fold case, replace full-width marks or lack a character, not even a
perfect translation scores 100, and two corpora cannot be compared by their scores.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

from ..corpora import Corpus
from ..corpora.binarised import binarised_lines
from ..errors import UserError
from ..io import MAX_JSON, parse_json, read_text, shown, write_json
from .restoring import join_pieces
from .scored_split import ScoredSplit

LOW = 99.0
"""BLEU; a ceiling below it should be told wherever scores are."""


@dataclass(frozen=True)
class Ceiling:
    """BLEU of the references of a split through the pieces, and what an evaluation must share to have it.

    Attributes:
        split: public name of the split.
        language: target language.
        bleu: from 0 to 100.
        tokenizer: sacrebleu's, as in its signature.
        references: whose they are, sacrebleu's or the corpus's own.
        example: of a ``bleu`` below :data:`LOW` a line that changes, and what becomes of it; else empty.
    """

    split: str
    language: str
    bleu: float
    tokenizer: str
    references: str
    example: str = ""

    def __str__(self) -> str:
        told = f"a perfect translation of {self.split} into {self.language} scores {self.bleu:.2f} BLEU"
        return f"{told}, because in pieces {self.example}" if self.example else told


def prepared_ceilings(corpus: Corpus) -> list[Ceiling]:
    """The ceiling of each test set, or of ``valid`` if there is none, in each direction that is translated.

    They are kept in ``ceilings.json`` of a prepared corpus, and computed if that is not of its present state.
    A language that sacrebleu cannot tokenize here is left out.
    """
    known = _read(corpus)
    if known is not None:
        return known
    directions = (
        [corpus.languages] if corpus.description.triplets else [corpus.languages, corpus.languages[::-1]]
    )
    found = []
    for split in corpus.test_sets or ("valid",):
        for direction in directions:
            try:
                found.append(_compute(corpus, ScoredSplit(corpus, split, direction)))
            except UserError:  # evaluate.py names the package to install
                continue
    write_json(_path(corpus), {"made_from": _state(corpus), "ceilings": [asdict(each) for each in found]})
    return found


def ceiling_of(corpus: Corpus, split: ScoredSplit) -> Ceiling:
    """The ceiling of a split of a prepared corpus as an evaluation scores it: as kept, or else computed."""
    wanted = (split.name, split.target, split.bleu.tokenizer.signature(), _references(split))
    for each in _read(corpus) or ():
        if (each.split, each.language, each.tokenizer, each.references) == wanted:
            return each
    return _compute(corpus, split)


def _compute(corpus: Corpus, split: ScoredSplit) -> Ceiling:
    through = list(
        map(join_pieces, binarised_lines(corpus.bin, split.subset, corpus.languages, split.target))
    )
    bleu = split.bleu_of(through)
    example = ""
    if bleu < LOW:
        pairs = zip(split.references[0], split.natural(split.lines(through)))
        example = next((f"{shown(a)} becomes {shown(b)}" for a, b in pairs if a.split() != b.split()), "")
        if not corpus.description.wordpiece and corpus.description.normalization != "identity":
            example += f" (normalization: {corpus.description.normalization}; identity changes no character)"
    tokenizer = split.bleu.tokenizer.signature()
    return Ceiling(split.name, split.target, round(bleu, 2), tokenizer, _references(split), example)


def _references(split: ScoredSplit) -> str:
    return split.references_name if split.references_name.startswith("sacrebleu") else "the corpus's"


def _path(corpus: Corpus) -> Path:
    return corpus.folder / "ceilings.json"


def _state(corpus: Corpus) -> str:
    """A hash that changes when the corpus is prepared in another way."""
    digest = hashlib.sha256()
    for path in (corpus.bin / "stamp.json", corpus.spm_model.with_suffix(".vocab")):
        digest.update(path.read_bytes() if path.is_file() else b"none")
    return digest.hexdigest()


def _read(corpus: Corpus) -> list[Ceiling] | None:
    """The kept ceilings; None if there are none, if the state was another, or if the file is damaged."""
    try:
        record = parse_json(read_text(_path(corpus), "the ceilings", most=MAX_JSON))
        if record["made_from"] != _state(corpus):
            return None
        return [Ceiling(**_checked(each)) for each in record["ceilings"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _checked(values: dict) -> dict:
    if type(values["bleu"]) not in (int, float) or not 0 <= values["bleu"] <= 100.01:
        raise ValueError("no BLEU")
    if not all(isinstance(value, str) for name, value in values.items() if name != "bleu"):
        raise ValueError("not text")
    return values
