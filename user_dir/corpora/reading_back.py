"""Reads binarised data back and compares it with the text in pieces, symbol for symbol."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import UserError
from ..io import shown
from .binarised import check_side, tokens_of
from .dictionary import Dictionary
from .readers import read_made_lines
from .reserved import SYMBOLS, UNKNOWN
from .spacing import SPACE_MARK

_BETWEEN = f" {SYMBOLS[0]} "
_BEGINS_WORD = SPACE_MARK, UNKNOWN  # WordPiece's <unk> is a whole word


class _Numbers(dict):
    """A number for each symbol, and that of the unknown one for all others."""

    def __init__(self, dictionary: Dictionary):
        super().__init__(dictionary.indices)
        self._unknown = dictionary.unk()

    def __missing__(self, symbol: str) -> int:
        return self._unknown


def read_back(
    prefix: Path, dictionary: Dictionary, pieces: Path, parts: tuple[str, ...]
) -> dict[str, dict[str, int]]:
    """Compare one side of a subset with its pieces, one sentence per line and separated by spaces.

    ``prefix`` is the path of the binarised files without extension. Returns for each of the ``parts`` of a
    line, which our separator parts, the number of ``words`` that spaces part, of ``pieces``, of those that
    are ``unknown``, and of ``empty`` lines.

    Raises:
        UserError: a sentence has other symbols than its line, or one of fairseq's own; with the line.
    """
    check_side(prefix, len(dictionary))
    counts = [dict.fromkeys(("words", "pieces", "unknown", "empty"), 0) for _ in parts]
    number_of, unknown, eos = _Numbers(dictionary).__getitem__, dictionary.unk(), dictionary.eos()
    own = {dictionary.bos(), dictionary.pad(), eos}
    tokens, number, position = np.asarray(tokens_of(prefix)), 0, 0
    for number, line in enumerate(read_made_lines(pieces), start=1):
        expected = list(map(number_of, line.split(" "))) if line else []
        found = tokens[position : position + len(expected) + 1].tolist()
        if found != [*expected, eos] or not own.isdisjoint(expected):
            raise UserError(
                f"{pieces}, line {number}: {shown(line)} reads back from the binarised data as "
                f"{shown(' '.join(dictionary[token] for token in found))}"
            )
        position += len(found)
        for count, part in zip(counts, line.split(_BETWEEN, len(parts) - 1)):
            symbols = part.split()
            count["words"] += sum(symbol.startswith(_BEGINS_WORD) for symbol in symbols)
            count["pieces"] += len(symbols)
            count["unknown"] += list(map(number_of, symbols)).count(unknown)
            count["empty"] += not symbols
    if position != len(tokens):
        raise UserError(f"{pieces} has {number:,} lines, but the binarised data have more sentences")
    return dict(zip(parts, counts))
