"""Checks that the words of a text are those of its pieces."""

from __future__ import annotations

import re
from itertools import zip_longest

from ..errors import UserError
from ..io import shown
from .readers.triplets import BETWEEN
from .reserved import UNKNOWN
from .spacing import SPACE_MARK, spaced

EVERY = 100
"""Of lines without a new character, every N-th is looked at."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class WordCheck:
    """Compares sentences with their pieces: the first line with each character, and every 100th.

    What sentencepiece's own rule makes of a sentence is compared with its pieces, word for word.

    Args:
        processor: from ``load_pieces``.
        where: name of the text, for the error message.
        separated: whether `` [SEP] `` in a sentence is the separator of post-editing triplets.
    """

    def __init__(self, processor, where: str = "", separated: bool = False):
        self._processor, self._where, self._separated = processor, where, separated
        self._seen: set[str] = set()
        self._line = 0

    def __call__(self, sentence: str, pieces: str) -> None:
        """Look at a sentence, if it is its turn, and its pieces, separated by spaces.

        Raises:
            UserError: its words are others; with its line.
        """
        self._line += 1
        if self._line % EVERY and self._seen.issuperset(sentence):
            return
        self._seen.update(sentence)
        parts = spaced(sentence).split(BETWEEN) if self._separated else [spaced(sentence)]
        normalised = BETWEEN.join(map(self._processor.normalize, parts))
        expected = normalised.replace(SPACE_MARK, " ").split()
        found = words_of(pieces)
        differing = (pair for pair in zip_longest(expected, found, fillvalue="") if not _alike(*pair))
        for a, b in differing:
            raise UserError(
                f"{self._where}, line {self._line}: the words of the text are not those of its pieces: "
                f"{shown(a)} became {shown(b)}; change the line, or the normalization in corpus.yaml"
            )


def _alike(expected: str, found: str) -> bool:
    return expected == found or (found == UNKNOWN and expected != "")  # WordPiece does not know the word


def words_of(pieces: str) -> list[str]:
    """The words of pieces as fairseq splits and joins them; bytes are decoded, unknown words stand apart."""
    parts = (f"{SPACE_MARK}{part}" if part == UNKNOWN else part for part in pieces.split())
    joined = b"".join(bytes.fromhex(part[3:5]) if _BYTE.fullmatch(part) else part.encode() for part in parts)
    return joined.decode("utf-8", errors="replace").replace(SPACE_MARK, " ").split()
