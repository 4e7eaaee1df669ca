"""Whether pieces have no capitals, and what scoring does about it."""

from __future__ import annotations

from . import normalising
from .corpus import Corpus
from .segment import load_pieces

FROM_TRANSLATION = "from_translation"


def case_of(corpus: Corpus, split: str) -> str | None:
    """What scoring does about pieces without capitals, which a step or the tokenizer of a BERT made.

    ``ignored``: text is scored without regard to case; :data:`FROM_TRANSLATION`: it is restored before; None:
    the pieces of the split have capitals.

    Raises:
        UserError: ``case`` in the description asks to restore what is not lost.
    """
    description = corpus.description
    lost = "lower_case" in normalising.steps_of(description, split)
    if description.wordpiece and not lost:
        rules = load_pieces(corpus.pieces).rules
        lost = rules is not None and rules.lower_case
    if description.case is not None and not lost:
        raise description.error("case", f"case: the pieces of {split} have capitals as they are; omit it")
    return description.case or ("ignored" if lost else None)
