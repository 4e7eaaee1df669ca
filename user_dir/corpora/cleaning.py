"""Filters that drop training pairs by the lengths of both sides, with a count per reason.

The limits are those of Moses' ``clean-corpus-n.perl``: a side shorter than ``min`` or longer than ``max``, or
one side more than ``ratio`` times as long as the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from ..languages import language as language_of
from .description import Description
from .readers.left_out import EMPTY
from .worker_pool import map_batches

UNITS = {"words": "words", "moses_tokens": "Moses tokens", "pieces": "pieces"}
Pair = tuple[str, str]


@dataclass(frozen=True)
class Limits:
    """Limits of the lengths of a pair, counted in ``unit``, a key of ``UNITS``."""

    unit: str
    min: int = 1
    max: int | list[int] | None = None  # of both sides, or of source and target
    ratio: float | None = None

    def complaint(self, left: int, right: int) -> str | None:
        """Why a pair of sides of these lengths is dropped, or None."""
        if min(left, right) < self.min:
            return f"a side had fewer than {self.min} {UNITS[self.unit]}"
        if isinstance(self.max, list):
            for side, length, most in zip(("source", "target"), (left, right), self.max):
                if length > most:
                    return f"the {side} had more than {most} {UNITS[self.unit]}"
        elif self.max is not None and max(left, right) > self.max:
            return f"a side had more than {self.max} {UNITS[self.unit]}"
        if self.ratio is not None and max(left, right) > self.ratio * min(left, right):
            return f"one side had more than {self.ratio:g} times the {UNITS[self.unit]} of the other"
        return None


def limits_of(description: Description, pieces: bool) -> tuple[Limits, ...]:
    """The filters of ``clean`` on sentences, or on pieces."""
    found = {unit: getattr(description.clean, unit) for unit in UNITS}
    return tuple(
        Limits(unit, each.min, each.max, each.ratio)
        for unit, each in found.items()
        if each is not None and (unit == "pieces") == pieces
    )


def clean(
    pairs: Iterable[Pair], languages: tuple[str, str], limits: tuple[Limits, ...]
) -> tuple[list[Pair], Counter]:
    """Return the pairs that pass all filters, in order, and the number of dropped pairs per reason.

    A pair is counted for the first filter that drops it. Pairs with an empty side are always dropped.
    """
    kept, dropped = [], Counter()
    for pair in pairs:
        reason = _reason(pair, languages, limits)
        if reason is None:
            kept.append(pair)
        else:
            dropped[reason] += 1
    return kept, dropped


def cleaned(
    pairs: Iterable[Pair],
    languages: tuple[str, str],
    limits: tuple[Limits, ...],
    dropped: Counter,
    workers: int,
) -> Iterator[Pair]:
    """The pairs that pass all filters; ``dropped`` is increased by the others, by reason."""
    for kept, reasons in map_batches(partial(clean, languages=languages, limits=limits), pairs, workers):
        dropped.update(reasons)
        yield from kept


def _reason(pair: Pair, languages: tuple[str, str], limits: tuple[Limits, ...]) -> str | None:
    if not (pair[0].strip() and pair[1].strip()):
        return EMPTY
    for each in limits:
        left, right = (_counter(each.unit, language)(side) for language, side in zip(languages, pair))
        reason = each.complaint(left, right)
        if reason is not None:
            return reason
    return None


@cache
def _counter(unit: str, language: str) -> Callable[[str], int]:
    if unit != "moses_tokens":
        return lambda text: len(text.split())
    from sacremoses import MosesTokenizer

    tokenize = MosesTokenizer(language_of(language).moses).tokenize
    return lambda text: len(tokenize(text, escape=False))
