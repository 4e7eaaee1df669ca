"""Preprocessing of new text in the same way as the splits of a model's corpus."""

from __future__ import annotations

from collections.abc import Iterator

from . import normalising
from .corpus import Corpus
from .segment import load_pieces, pieces_of


class NewText:
    """Normalises sentences and segments them into pieces, as ``prepare`` does for test sets.

    For a corpus that is released as tokens, sentences must be tokenised in the same way.

    Args:
        corpus: prepared corpus.
        language: language of the sentences.

    Raises:
        UserError: the corpus has no complete sentencepiece model.
    """

    def __init__(self, corpus: Corpus, language: str):
        self._language = language
        self._steps = normalising.steps_of_new_text(corpus.description)
        self._processor = load_pieces(corpus.spm_model)

    def pieces(self, sentences: list[str]) -> Iterator[str]:
        """Each sentence as its pieces, joined by spaces; empty if normalisation removes everything."""
        yield from pieces_of(normalising.normalise(sentences, self._language, self._steps), self._processor)
