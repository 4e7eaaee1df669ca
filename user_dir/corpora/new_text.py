"""Preprocessing of new text in the same way as the splits of a model's corpus."""

from __future__ import annotations

from collections.abc import Iterator

from . import normalising
from .corpus import Corpus
from .readers.triplets import source_line
from .segment import load_pieces, pieces_of


class NewText:
    """Normalises sentences and segments them into pieces, as ``prepare`` does for test sets.

    For a corpus that is released as tokens, sentences must be tokenised in the same way. For a triplet corpus
    a sentence is ``src``, a tab and ``mt``.

    Args:
        corpus: prepared corpus.
        language: language of the sentences.

    Raises:
        UserError: the corpus has no complete model of its pieces.
    """

    def __init__(self, corpus: Corpus, language: str):
        self._language = language
        self._steps = normalising.steps_of_new_text(corpus.description)
        self._processor = load_pieces(corpus.pieces)
        self._triplets = corpus.description.triplets
        self._source = language == corpus.languages[0]

    def pieces(self, sentences: list[str], first_line: int = 1, name: str = "") -> Iterator[str]:
        """Each sentence as its pieces, joined by spaces; empty if normalisation removes everything.

        Raises UserError, with the file's ``name`` and the line, if one of a triplet corpus has not one tab.
        """
        if self._triplets and self._source:
            sentences = [
                source_line(text, number, name) for number, text in enumerate(sentences, start=first_line)
            ]
        normalised = normalising.normalise(sentences, self._language, self._steps)
        yield from pieces_of(normalised, self._processor, separated=self._triplets)
