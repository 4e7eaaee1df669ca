"""The share of ``<unk>`` among the pieces of a corpus, and what to do about it."""

from __future__ import annotations

from ..errors import UserError
from .bert_tokenizer import CONFIG
from .corpus import Corpus

MANY_UNKNOWN, TOO_MANY_UNKNOWN = 0.01, 0.2
"""Shares of a side of a split above which preparing warns, and ends."""


def unknown_share(count: dict[str, int]) -> float:
    """The share of unknown pieces, from the counts of :func:`.reading_back.read_back`."""
    return count["unknown"] / max(count["pieces"], 1)


def require_known(corpus: Corpus, sides: dict[str, dict[str, dict[str, int]]]) -> None:
    """Raise UserError, with the remedy, if a side of a split has too many unknown pieces."""
    for subset, counts in sides.items():
        for side, count in counts.items():
            if unknown_share(count) > TOO_MANY_UNKNOWN:
                raise UserError(
                    f"{corpus.name}: of the pieces of {side} in {corpus.split(subset)}, "
                    f"{100 * unknown_share(count):.1f} % are unknown to {corpus.pieces}; {remedy(corpus)}"
                )


def remedy(corpus: Corpus) -> str:
    """How to have fewer unknown pieces."""
    wordpiece = corpus.description.wordpiece
    if wordpiece is None:
        covered = corpus.description.character_coverage == 1
        text = "" if covered else "; character_coverage: 1.0, every character of the training text"
        return f"byte_fallback: true gives every character pieces{text}"
    if corpus.pieces.suffix == ".txt":
        place = wordpiece[: wordpiece.rfind("/") + 1] + CONFIG
        return f"put {place} beside {wordpiece}: it says whether the BERT lower-cases and strips accents"
    return "the BERT lacks characters of this text; take one of these languages"
