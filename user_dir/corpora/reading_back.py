"""Reads binarised data back and compares it with the text in pieces, symbol for symbol."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset

from ..errors import UserError
from ..io import shown
from .binarised import check_side, tokens_of
from .readers import read_made_lines
from .worker_pool import batches


class _Numbers(dict):
    """A number for each symbol, and that of the unknown one for all others."""

    def __init__(self, dictionary: Dictionary):
        super().__init__(dictionary.indices)
        self._unknown = dictionary.unk()

    def __missing__(self, symbol: str) -> int:
        return self._unknown


def read_back(prefix: Path, dictionary: Dictionary, pieces: Path) -> dict[str, int]:
    """Compare one side of a subset with its pieces, one sentence per line and separated by spaces.

    Args:
        prefix: path of the binarised files without extension.
        dictionary: theirs.
        pieces: the text in pieces.

    Returns:
        The number of ``pieces``, of those that are ``unknown``, and of ``empty`` lines.

    Raises:
        UserError: a sentence has other symbols than its line, or one of fairseq's own; with the line.
    """
    check_side(prefix, len(dictionary))
    counts = dict.fromkeys(("pieces", "unknown", "empty"), 0)
    number_of, eos = _Numbers(dictionary).__getitem__, dictionary.eos()
    tokens, first, position = tokens_of(prefix), 0, 0
    for batch in batches(read_made_lines(pieces)):
        expected: list[int] = []
        for line in batch:
            expected += map(number_of, line.split(" ")) if line else ()
            expected.append(eos)
        numbers = np.array(expected)
        found = tokens[position : position + len(numbers)]
        own = (numbers == dictionary.bos()) | (numbers == dictionary.pad())
        if not np.array_equal(found, numbers) or own.any() or np.count_nonzero(numbers == eos) != len(batch):
            raise _fault(MMapIndexedDataset(str(prefix)), dictionary, batch, first, pieces)
        counts["pieces"] += len(numbers) - len(batch)
        counts["unknown"] += int(np.count_nonzero(numbers == dictionary.unk()))
        counts["empty"] += batch.count("")
        first, position = first + len(batch), position + len(numbers)
    if position != len(tokens):
        raise UserError(f"{pieces} has {first:,} lines, but the binarised data have more sentences")
    return counts


def _fault(
    rows: MMapIndexedDataset, dictionary: Dictionary, batch: list[str], first: int, text: Path
) -> UserError:
    """The error for the first line of a batch that differs from its sentence, or has one of fairseq's own."""
    number_of = _Numbers(dictionary)
    own = {"<s>", "<pad>", "</s>"}
    for number, line in enumerate(batch, start=first):
        pieces = line.split(" ") if line else []
        found = rows[number].tolist() if number < len(rows) else []
        if found != [*map(number_of.__getitem__, pieces), dictionary.eos()] or not own.isdisjoint(pieces):
            break
    return UserError(
        f"{text}, line {number + 1}: {shown(line)} reads back from the binarised data as "
        f"{shown(' '.join(dictionary[token] for token in found))}"
    )
