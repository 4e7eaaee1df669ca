"""Normalisation of text before segmentation, with sacremoses, the Moses scripts in Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import regex

from ..languages import language as language_of
from .description import EVERY, Description
from .readers.triplets import BETWEEN

_NON_PRINTING = regex.compile(r"\p{C}")


def _punctuation(language: str) -> Callable[[str], str]:
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer(language_of(language).moses).normalize


def _non_printing(language: str) -> Callable[[str], str]:
    # As Moses' remove-non-printing-char.perl; sacremoses deletes the character, which joins words at a tab.
    return lambda line: _NON_PRINTING.sub(" ", line)


def _lower_case(language: str) -> Callable[[str], str]:
    return str.lower


STEPS = {"punctuation": _punctuation, "non_printing": _non_printing, "lower_case": _lower_case}


def steps_of(description: Description, split: str) -> tuple[str, ...]:
    """The steps for a split, in order; empty for most corpora."""
    return tuple(description.normalise.get(split, description.normalise.get(EVERY, ())))


def steps_of_new_text(description: Description) -> tuple[str, ...]:
    """The steps for new text: those of the first test set, or else of ``valid``."""
    return steps_of(description, next(iter(description.test_sets), "valid"))


def normalise(lines: list[str], language: str, steps: tuple[str, ...]) -> list[str]:
    """Apply all steps to each line, and to both parts of a line with a separator."""
    for step in steps:
        function = _function(step, language)
        lines = [BETWEEN.join(map(function, line.split(BETWEEN))) for line in lines]
    return lines


@cache
def _function(step: str, language: str) -> Callable[[str], str]:
    return STEPS[step](language)
