"""How translations are searched for, and sentences in batches; without fairseq."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import UserError
from ..io import shown
from .limits import Limit

MAX_BEAM = 1000  # time and memory for a sentence grow with the beam


@dataclass(frozen=True)
class Search:
    """How translations are searched for."""

    beam: int = 5
    length_penalty: float = 1.0  # fairseq's ``--lenpen``
    limit: Limit = field(default_factory=Limit)
    max_tokens: int = 4096  # of a batch, on one side, including padding


def check_beam(beam: int, symbols: int) -> None:
    """Raise a ``UserError`` unless fairseq can search with so large a beam over so many symbols."""
    largest = min(MAX_BEAM, symbols)
    if not 1 <= beam <= largest:
        raise UserError(f"--beam {shown(beam)}: give 1 to {largest}; the vocabulary has {symbols}")


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Numbers of sentences of similar length, in batches of at most ``max_tokens`` with padding.

    They are fairseq's for sentences that are sorted by length; no sentence may be longer than ``max_tokens``.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[number] * (len(batch) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def log2_p(hypothesis: dict) -> float:
    """The score of a hypothesis as on lines ``H-``: log₂ p, normalised by its length."""
    return float(hypothesis["score"] / math.log(2))
