"""Leaving out training pairs that a held-out set has with other punctuation, case or spaces.

Published splits are often disjoint only as strings: of "Komm!" and "Komm." one may be trained on and the
other tested, which a test score then rewards.
"""

from __future__ import annotations

import os
import unicodedata
from hashlib import blake2b
from pathlib import Path

from .corpus import Corpus
from .readers import read_made_lines

NEAR_DUPLICATE = "a side was that of a held-out pair but for punctuation, case or spaces"


def letters(text: str) -> str:
    """The letters, marks and digits of a text in NFKC, caseless: what near-duplicates have in common."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(character for character in folded if unicodedata.category(character)[0] in "LMN")


def drop_near_duplicates(corpus: Corpus, folder: Path) -> int:
    """Rewrite ``train`` in a folder of text without the near-duplicates of the other subsets' pairs.

    A pair goes if either of its sides has the :func:`letters` of the same side of a held-out pair.

    Returns:
        The number of pairs left out.
    """
    held_out = {
        (language, key)
        for subset in corpus.subsets.values()
        if subset != "train"
        for language in corpus.languages
        for line in read_made_lines(folder / f"{subset}.{language}")
        if (key := _key(line))
    }
    paths = [folder / f"train.{language}" for language in corpus.languages]
    parts = [path.with_name(f"{path.name}.part") for path in paths]
    dropped = 0
    with (
        parts[0].open("w", encoding="utf-8", newline="\n") as left,
        parts[1].open("w", encoding="utf-8", newline="\n") as right,
    ):
        for pair in zip(*map(read_made_lines, paths)):
            if any((language, _key(side)) in held_out for language, side in zip(corpus.languages, pair)):
                dropped += 1
                continue
            left.write(pair[0] + "\n")
            right.write(pair[1] + "\n")
    for part, path in zip(parts, paths):
        os.replace(part, path)
    return dropped


def _key(line: str) -> bytes:
    found = letters(line)
    return blake2b(found.encode(), digest_size=16).digest() if found else b""
