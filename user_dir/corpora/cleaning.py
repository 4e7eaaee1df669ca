"""Which training pairs are left out, and how text is normalised.

The limits are those of Moses' ``clean-corpus-n.perl``: a side shorter than ``min`` or longer than ``max``, or
one side more than ``ratio`` times as long as the other.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import regex

from .description import Description, Limit
from .languages import language as language_of
from .readers.triplets import BETWEEN

EMPTY = "a side was empty"
NEAR_DUPLICATE = "a side was that of a held-out pair but for punctuation, case or spaces"
UNITS = {"moses_tokens": "Moses tokens", "pieces": "pieces"}
Pair = tuple[str, str]
_NON_PRINTING = regex.compile(r"\p{C}")
_NO_LETTERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")


def cleaned(
    pairs: Iterable[Pair], languages: tuple[str, str], unit: str, limit: Limit | None, dropped: Counter
) -> Iterator[Pair]:
    """The pairs within ``limit``, in a ``unit`` of ``UNITS``; ``dropped`` counts the others, by reason."""
    for pair in pairs:
        reason = complaint(pair, languages, unit, limit)
        if reason is None:
            yield pair
        else:
            dropped[reason] += 1


def complaint(pair: Pair, languages: tuple[str, str], unit: str, limit: Limit | None) -> str | None:
    """Why a pair, of text or of pieces, is left out; None if it is kept."""
    if not (pair[0].strip() and pair[1].strip()):
        return EMPTY
    if limit is None:
        return None
    left, right = (_counter(unit, language)(side) for language, side in zip(languages, pair))
    if min(left, right) < limit.min:
        return f"a side had fewer than {limit.min} {UNITS[unit]}"
    if isinstance(limit.max, list):
        for side, length, most in zip(("source", "target"), (left, right), limit.max):
            if length > most:
                return f"the {side} had more than {most} {UNITS[unit]}"
    elif limit.max is not None and max(left, right) > limit.max:
        return f"a side had more than {limit.max} {UNITS[unit]}"
    if limit.ratio is not None and max(left, right) > limit.ratio * min(left, right):
        return f"one side had more than {limit.ratio:g} times the {UNITS[unit]} of the other"
    return None


@cache
def _counter(unit: str, language: str) -> Callable[[str], int]:
    if unit == "pieces":
        return lambda text: len(text.split())
    from sacremoses import MosesTokenizer

    tokenize = MosesTokenizer(language_of(language).subtag).tokenize
    return lambda text: len(tokenize(text, escape=False))


def letters(text: str) -> str:
    """The letters, marks and digits of a text in NFKC, caseless: what near-duplicates have in common.

    Published splits are often disjoint only as strings: "Komm!" may be in the training text and "Komm." in a
    test set, which inflates the test score.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _NO_LETTERS.sub("", folded)


def unlike(pairs: Iterable[Pair], held_out: Iterable[Pair], dropped: Counter) -> Iterator[Pair]:
    """The pairs without a side whose :func:`letters` equal those of the same side of a held-out pair."""
    taken = [set(map(letters, texts)) - {""} for texts in zip(*held_out)]
    for pair in pairs:
        if any(letters(text) in side for side, text in zip(taken, pair)):
            dropped[NEAR_DUPLICATE] += 1
        else:
            yield pair


def steps_of_new_text(description: Description) -> tuple[str, ...]:
    """The steps for new text: those of the first test set, or else of ``valid``."""
    tests = [split for split in description.subsets if split not in ("train", "valid")]
    return description.steps((tests or ["valid"])[0])


def normalise(lines: list[str], language: str, steps: tuple[str, ...]) -> list[str]:
    """Apply all steps to each line; to both parts separately if it has a separator."""
    for step in steps:
        function = _step(step, language)
        lines = [BETWEEN.join(map(function, line.split(BETWEEN))) for line in lines]
    return lines


@cache
def _step(name: str, language: str) -> Callable[[str], str]:
    if name == "lower_case":
        return str.lower
    if name == "non_printing":
        # A space, as in Moses' remove-non-printing-char.perl; deleting, as by sacremoses, joins words.
        return lambda line: _NON_PRINTING.sub(" ", line)
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer(language_of(language).subtag).normalize
