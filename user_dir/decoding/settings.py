"""What a beam search is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What ``fairseq-generate`` was asked for.

    Attributes:
        beam: K, hypotheses per sentence.
        symbols: V, the size of the vocabulary.
        longest: positions of a translation without its end.
        shortest: no translation is shorter, without its end.
        begin: the symbol before the first position.
        end: the symbol that ends a translation.
        padding: the symbol that is none.
        suppressed: symbols that no translation has, where nothing is prescribed.
        unknown: the symbol whose log-probability is lowered by ``penalty``.
        penalty: see ``unknown``.
        normalised: scores are divided by the length, with the end, to the power of ``length_penalty``.
        length_penalty: see ``normalised``.
        ngram: no n-gram of this many symbols may come twice; 0 for any.
        temperature: logits are divided by it.
    """

    beam: int
    symbols: int
    longest: int
    shortest: int
    begin: int
    end: int
    padding: int
    suppressed: Sequence[int]
    unknown: int
    penalty: float
    normalised: bool
    length_penalty: float
    ngram: int = 0
    temperature: float = 1.0
