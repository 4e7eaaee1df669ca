"""Symbols with a meaning of their own, which no text may become."""

from __future__ import annotations

from collections.abc import Mapping

from .dictionary import BOS, EOS, PAD, UNKNOWN
from .readers.triplets import MASK, SEPARATOR
from .spacing import SPACE_MARK

SYMBOLS = (f"{SPACE_MARK}{SEPARATOR}", MASK)
"""Our own: the separator of post-editing triplets with the space before it, and the mask."""
SEPARATORS = (SYMBOLS[0], SEPARATOR)
"""Symbols that separate source and machine translation: of corpora from prepare.py, and of others."""
MULTIPLE = 8  # dictionary sizes that suit tensor cores


def separator_of(indices: Mapping[str, int]) -> int | None:
    """The index of the separator among those of a dictionary's symbols, or None."""
    return next((indices[symbol] for symbol in SEPARATORS if symbol in indices), None)


def filler(number: int) -> str:
    """fairseq's name of an entry that fills a dictionary up to a multiple of :data:`MULTIPLE`."""
    return f"madeupword{number:04}"


FAIRSEQ = frozenset([BOS, PAD, EOS, UNKNOWN, *map(filler, range(MULTIPLE))])
"""Those that a dictionary of fairseq has for itself."""
RESERVED = FAIRSEQ.union(SYMBOLS)


def spelled(pieces: list[str], reserved: frozenset[str] = RESERVED) -> list[str]:
    """Pieces with reserved ones replaced by their characters.

    sentencepiece joins unknown characters, so that a ``</s>`` in text may be one piece.
    """
    if reserved.isdisjoint(pieces):
        return pieces
    return [part for piece in pieces for part in (piece if piece in reserved else (piece,))]
