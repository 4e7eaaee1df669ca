"""Corrections by a post-editor: their case, restored from the machine translation, and what they changed."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from functools import lru_cache

import regex
from sacrebleu.metrics import TER

from ..corpora import Corpus
from ..corpora.cleaning import normalise
from ..corpora.pieces import SPACE_MARK, load_pieces

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")


def with_case_of(correction: str, translation: str, fold: Callable[[str], str]) -> str:
    """Write the words of a correction as the machine translation writes them.

    A word that aligns with the translation, or occurs anywhere in it but at its beginning, is copied from it.
    Other words stay as they are, and the first word begins with a capital if the translation does.

    Args:
        correction: without case, as pieces restore it.
        translation: as it was given.
        fold: what preparing makes of a word, such as ``Käse`` → ``kase``.
    """
    theirs = [match[0] for match in _WORD.finditer(translation)]
    places = list(_WORD.finditer(correction))
    folded, ours = [fold(word) for word in theirs], [place[0] for place in places]
    anywhere = dict(zip(folded[1:], theirs[1:]))
    words = [anywhere.get(word, word) for word in ours]
    for match in SequenceMatcher(None, folded, ours, autojunk=False).get_matching_blocks():
        for offset in range(match.size):
            # The first word of the translation may have a capital only because it is the first.
            if match.a + offset or not match.b + offset or theirs[0].lower() == theirs[0]:
                words[match.b + offset] = theirs[match.a + offset]
    if words and theirs and theirs[0][0].isupper():
        words[0] = words[0][0].upper() + words[0][1:]
    parts, end = [], 0
    for place, word in zip(places, words):
        parts += [correction[end : place.start()], word]
        end = place.end()
    return "".join([*parts, correction[end:]])


def folding(corpus: Corpus, language: str, split: str) -> Callable[[str], str]:
    """A function that returns what preparing a split of a corpus makes of a word in a language."""
    steps, processor = corpus.description.steps(split), load_pieces(corpus.pieces)

    @lru_cache(maxsize=2**16)
    def fold(word: str) -> str:
        (normalised,) = normalise([word], language, steps)
        return processor.normalize(normalised).replace(SPACE_MARK, " ").strip()

    return fold


def changes(
    hypotheses: list[str], uncorrected: list[str], references: list[list[str]], ter: TER
) -> dict[str, int]:
    """Sentences ``left_alone``, ``improved`` by TER, ``worsened``, or changed with ``no_effect``."""
    counts = dict.fromkeys(("left_alone", "improved", "worsened", "no_effect"), 0)
    before, after = (ter._extract_corpus_statistics(lines, references) for lines in (uncorrected, hypotheses))
    for old, new, (edits_before, _), (edits_after, _) in zip(uncorrected, hypotheses, before, after):
        if old.split() == new.split():
            counts["left_alone"] += 1
        elif edits_after == edits_before:
            counts["no_effect"] += 1
        else:
            counts["improved" if edits_after < edits_before else "worsened"] += 1
    return counts
