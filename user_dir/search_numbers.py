"""Which numbers a beam search can be given, by fairseq's code or in C++; without fairseq."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .errors import UserError
from .io import shown

MAX_POWER = 1e32  # of a length: a score of -1e6, multiplied by it, is still a number of float32
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3  # logits, divided by the first, fit float16

# The names that the user gives, by fairseq's names of the arguments, with what they may be.
_RULES = {
    "beam_size": ("beam", "a whole number from 1", lambda value: value >= 1 and value == int(value)),
    "max_len_a": ("max_len_a", "a finite number", math.isfinite),
    "max_len_b": ("max_len_b", "a finite number", math.isfinite),
    "len_penalty": ("lenpen", "a finite number", math.isfinite),
    "unk_penalty": ("unkpen", "a number above minus infinity", lambda value: value > -math.inf),
    "temperature": (
        "temperature",
        f"from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}",
        lambda value: MIN_TEMPERATURE <= value <= MAX_TEMPERATURE,
    ),
    "lm_weight": ("lm_weight", "a finite number", math.isfinite),
}


def check_numbers(given: Mapping[str, object]) -> None:
    """Raise UserError over a number that no search computes with, of some by fairseq's names of arguments."""
    for argument, (name, words, fits) in _RULES.items():
        if argument not in given:
            continue
        value = given[argument]
        try:
            good = not isinstance(value, (str, bool)) and fits(value)
        except (TypeError, ValueError, OverflowError):
            good = False
        if not good:
            raise UserError(f"{name} of the search must be {words}, not {shown(value)}")


def check_length_penalty(penalty: float, longest: int) -> None:
    """Raise UserError if the power of a length overflows, with translations of up to so many pieces."""
    limit = math.log(MAX_POWER) / math.log(max(longest, 2))
    if abs(penalty) > limit:
        raise UserError(
            f"lenpen of the search is {shown(penalty)}: the power of a length overflows; with translations "
            f"of up to {longest:,} pieces it may be from -{limit:.3g} to {limit:.3g} (1 is none)"
        )
