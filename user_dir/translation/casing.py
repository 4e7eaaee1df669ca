"""Restores the case and accents of corrections in pieces that have neither, from the machine translation."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from functools import lru_cache

import regex

from ..corpora import Corpus, normalising
from ..corpora.segment import load_pieces
from ..corpora.spacing import SPACE_MARK

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")


def with_case_of(correction: str, translation: str, fold: Callable[[str], str]) -> str:
    """Write the words of a correction as the machine translation writes them.

    A word at a matching place of the translation, or else anywhere in it but at its beginning, is copied.
    Other words stay as they are, and the first word begins with a capital if the translation does.

    Args:
        correction: without case, as pieces restore it.
        translation: as it was given.
        fold: what preparing makes of a word, such as ``Käse`` → ``kase``.
    """
    theirs = [found[0] for found in _WORD.finditer(translation)]
    places = list(_WORD.finditer(correction))
    folded, ours = [fold(word) for word in theirs], [found[0] for found in places]
    anywhere = dict(zip(folded[1:], theirs[1:]))
    words = [anywhere.get(word, word) for word in ours]
    for match in SequenceMatcher(None, folded, ours, autojunk=False).get_matching_blocks():
        for offset in range(match.size):
            # A word that began the translation had its capital from there.
            if match.a + offset or not match.b + offset or theirs[0].lower() == theirs[0]:
                words[match.b + offset] = theirs[match.a + offset]
    if words and theirs and theirs[0][0].isupper():
        words[0] = words[0][0].upper() + words[0][1:]
    parts, end = [], 0
    for found, word in zip(places, words):
        parts += [correction[end : found.start()], word]
        end = found.end()
    return "".join([*parts, correction[end:]])


def folding(corpus: Corpus, language: str, split: str) -> Callable[[str], str]:
    """What preparing a split of a corpus makes of a word in a language."""
    steps, processor = normalising.steps_of(corpus.description, split), load_pieces(corpus.pieces)

    @lru_cache(maxsize=2**16)
    def fold(word: str) -> str:
        (normalised,) = normalising.normalise([word], language, steps)
        return processor.normalize(normalised).replace(SPACE_MARK, " ").strip()

    return fold
