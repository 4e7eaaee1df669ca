"""Text that belongs to no split, prepared for a model as the splits of its corpus were."""

from __future__ import annotations

from collections.abc import Iterator

from . import normalising
from .corpus import Corpus
from .segment import load_pieces, pieces_of


class NewText:
    """Normalises sentences and cuts them into pieces, by the functions that ``prepare`` uses for test sets.

    Sentences of a corpus that is released in tokens must be tokenised in the same way.

    Args:
        corpus: prepared.
        language: of the sentences.

    Raises:
        UserError: the corpus has no whole sentencepiece model.
    """

    def __init__(self, corpus: Corpus, language: str):
        self._language = language
        self._steps = normalising.steps_of_new_text(corpus.description)
        self._processor = load_pieces(corpus.spm_model)

    def pieces(self, sentences: list[str]) -> Iterator[str]:
        """Each sentence as its pieces, joined by spaces; empty where normalising leaves nothing of it."""
        yield from pieces_of(normalising.normalise(sentences, self._language, self._steps), self._processor)
