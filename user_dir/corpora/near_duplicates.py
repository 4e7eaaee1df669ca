"""Leaving out training pairs that a held-out set has with other punctuation, case or spaces.

Published splits are often disjoint only as strings: of "Komm!" and "Komm." one may be trained on and the
other tested, which a test score then rewards.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

import regex

from .corpus import Corpus
from .readers import read_made_lines
from .writing import write_rows

NEAR_DUPLICATE = "a side was that of a held-out pair but for punctuation, case or spaces"
_OTHERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")


def letters(text: str) -> str:
    """The letters, marks and digits of a text in NFKC, caseless: what near-duplicates have in common."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _OTHERS.sub("", folded)


def drop_near_duplicates(corpus: Corpus, folder: Path) -> int:
    """Rewrite ``train`` in a folder of text without the near-duplicates of the other subsets' pairs.

    A pair goes if either of its sides has the :func:`letters` of the same side of a held-out pair.

    Returns:
        The number of pairs kept.
    """
    held_out = {
        (language, found)
        for subset in corpus.subsets.values()
        if subset != "train"
        for language in corpus.languages
        for line in read_made_lines(folder / f"{subset}.{language}")
        if (found := letters(line))
    }
    pairs = zip(*(read_made_lines(folder / f"train.{language}") for language in corpus.languages))
    unlike = (
        pair
        for pair in pairs
        if not any((language, letters(side)) in held_out for language, side in zip(corpus.languages, pair))
    )
    kept = write_rows(folder / "unlike", "train", corpus.languages, unlike)["train"]
    for path in (folder / "unlike").iterdir():
        path.replace(folder / path.name)
    (folder / "unlike").rmdir()
    return kept
