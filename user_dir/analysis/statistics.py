"""The statistics of heads: to add one, decorate a function with :func:`statistic`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from . import measures
from .words import Side


@dataclass
class Attention:
    """The attention of one layer on a batch, and the properties of its tokens."""

    weights: Tensor  # (B, H, T, S) in float64; 0 where a pair does not exist
    possible: Tensor  # mask of the pairs of query and key that exist, (B, T, S)
    query: Side  # of the T queries
    key: Side  # of the S keys
    within: bool  # queries and keys are the same tokens (self-attention)

    @cached_property
    def queries(self) -> Tensor:
        """Mask of the queries, (B, T)."""
        return self.possible.any(-1)


Values = tuple[Tensor, Tensor]
"""Values (B, H, N), and a mask (B, N) of those of the N items of a sentence that have a value."""


class Statistic(NamedTuple):
    """A column of the statistics: the mean over all items of a split, or None if no item has a value."""

    measure: Callable[[Attention], Values | None]
    definition: str  # as in result files


STATISTICS: dict[str, Statistic] = {}
"""By name, in the order of the columns."""


def statistic(measure: Callable[[Attention], Values | None]) -> Callable[[Attention], Values | None]:
    """Register a function as a statistic of heads: its name is the column's, its docstring the definition.

    The function has an :class:`Attention` and returns :data:`Values`, or None if it is not defined for the
    layer.
    """
    text = " ".join(measure.__doc__.split()).removesuffix(".")
    STATISTICS[measure.__name__] = Statistic(measure, text[0].lower() + text[1:])
    return measure


@statistic
def entropy(attention: Attention) -> Values:
    """Entropy of a query's attention in nats, mean over queries."""
    return measures.entropy(attention.weights), attention.queries


@statistic
def confidence_previous(attention: Attention) -> Values:
    """Weight on the previous position, mean over the queries that have one."""
    return _at_offset(attention, -1)


@statistic
def confidence_current(attention: Attention) -> Values:
    """Weight on the current position, mean over the queries that have one."""
    return _at_offset(attention, 0)


@statistic
def confidence_next(attention: Attention) -> Values:
    """Weight on the next position, mean over the queries that have one."""
    return _at_offset(attention, 1)


def _at_offset(attention: Attention, offset: int) -> Values:
    positions = attention.query.position, attention.key.position
    return measures.weight_at_offset(attention.weights, *positions, attention.possible, offset)


@statistic
def subword_merging(attention: Attention) -> Values | None:
    """Largest total weight of one of a word's pieces on its other pieces (self-weight for a word of one
    piece), mean over words.
    """
    return _merging(attention, 0)


@statistic
def subword_merging_split(attention: Attention) -> Values | None:
    """subword_merging over words of several pieces only."""
    return _merging(attention, 1)


def _merging(attention: Attention, more_pieces_than: int) -> Values | None:
    if not attention.within:
        return None
    values, pieces = measures.subword_merging(attention.weights, attention.query.word)
    return values, pieces > more_pieces_than


@statistic
def subword_merging_confidence(attention: Attention) -> Values | None:
    """Weight within the query's own word, mean over the tokens of words."""
    return measures.mass_in_word(attention.weights, attention.query.word) if attention.within else None


@statistic
def interrogation(attention: Attention) -> Values | None:
    """Weight of interrogative words on question marks, mean over their pieces."""
    return _interrogation(attention, attention.key.question)


@statistic
def interrogation_declarative(attention: Attention) -> Values | None:
    """Weight of the same words on the final punctuation of sentences without a question mark."""
    return _interrogation(attention, attention.key.final_stop)


def _interrogation(attention: Attention, keys: Tensor) -> Values | None:
    """Weight of interrogative words on ``keys`` (B, S), where they can see one."""
    if attention.query.interrogative is None:
        return None
    seen = attention.query.interrogative & (attention.possible & keys[:, None, :]).any(-1)
    return measures.mass(attention.weights, keys), seen


@statistic
def eos(attention: Attention) -> Values:
    """Weight on </s>, mean over queries."""
    return measures.mass(attention.weights, attention.key.eos), attention.queries


@statistic
def punctuation(attention: Attention) -> Values:
    """Weight on punctuation, mean over queries."""
    return measures.mass(attention.weights, attention.key.punctuation), attention.queries
