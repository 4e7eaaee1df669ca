"""The statistics of heads: to add one, decorate a function with :func:`statistic`.

Definitions are those of Correia, Niculae and Martins 2019, section 5 and appendix, unless stated otherwise.
Shapes are of B sentences, H heads, T queries and S keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

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
"""Values (B, H, N) of N items, such as queries, of each sentence, and a mask (B, N): items with a value."""


STATISTICS: dict[str, Callable[[Attention], Values | None]] = {}
"""Functions by column name. A column is the mean over all items of a split that have a value, or None."""
DEFINITIONS: dict[str, str] = {}
"""Definitions by column name, as in result files."""


def statistic(measure: Callable[[Attention], Values | None]) -> Callable[[Attention], Values | None]:
    """Register a function as a statistic of heads: its name is the column's, its docstring the definition.

    The function takes an :class:`Attention` and returns :data:`Values`, or None where it is not defined.
    """
    text = " ".join(measure.__doc__.split()).removesuffix(".")
    STATISTICS[measure.__name__], DEFINITIONS[measure.__name__] = measure, text[0].lower() + text[1:]
    return measure


def support(weights: Tensor, possible: Tensor) -> tuple[Tensor, Tensor]:
    """Number of weights strictly above 0, (B, H), and of pairs, (B,), whose quotient is the density.

    ``possible`` (B, T, S) masks the existing pairs of query and key. With s source and t target tokens, there
    are s² in the encoder, t(t + 1)/2 in decoder self-attention and s·t in context attention.
    """
    attended = (weights > 0) & possible[:, None]
    return attended.sum((2, 3)), possible.sum((1, 2))


def diversity(weights: Tensor) -> Tensor:
    """Jensen–Shannon divergence between the heads of a layer, per query: (B, T), from 0 (identical) to 1.

    ``JS = H(mean_j p_j) − mean_j H(p_j)``, divided by its bound log(number of heads); NaN for a single head.
    """
    mixture = entropies(weights.mean(1, keepdim=True))[:, 0]
    bound = math.log(weights.size(1)) or math.nan
    return (mixture - entropies(weights).mean(1)) / bound


def entropies(weights: Tensor) -> Tensor:
    """Shannon entropy of each query's attention in nats, with 0·log 0 = 0: (B, H, T)."""
    return torch.special.entr(weights).sum(-1)


@statistic
def entropy(attention: Attention) -> Values:
    """Entropy of a query's attention in nats, mean over queries."""
    return entropies(attention.weights), attention.queries


@statistic
def keys_per_query(attention: Attention) -> Values:
    """Number of keys with a weight above 0, mean over queries."""
    return (attention.weights > 0).sum(-1), attention.queries


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
    wanted = attention.query.position[:, :, None] + offset
    there = (attention.key.position[:, None, :] == wanted) & attention.possible  # (B, T, S)
    return (attention.weights * there[:, None]).sum(-1), there.any(-1)


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
    weights, word, same = attention.weights, attention.query.word, _same_word(attention)
    itself = torch.eye(word.size(1), dtype=torch.bool, device=word.device)
    single = same.sum(-1) == 1  # (B, T)
    counted = torch.where(single[:, :, None], same & itself, same & ~itself)
    to_others = (weights * counted[:, None]).sum(-1)  # (B, H, T)

    # Tokens outside words are collected in a last column, which is dropped.
    count = int(word.max()) + 1
    column = word.masked_fill(word < 0, count)
    pieces = torch.zeros(word.size(0), count + 1, dtype=torch.long, device=word.device)
    pieces.scatter_add_(1, column, torch.ones_like(column))
    merged = weights.new_zeros(word.size(0), weights.size(1), count + 1)
    merged.scatter_reduce_(2, column[:, None].expand_as(to_others), to_others, "amax")
    return merged[..., :count], pieces[:, :count] > more_pieces_than


@statistic
def subword_merging_confidence(attention: Attention) -> Values | None:
    """Weight within the query's own word, mean over the tokens of words."""
    if not attention.within:
        return None
    return (attention.weights * _same_word(attention)[:, None]).sum(-1), attention.query.word >= 0


def _same_word(attention: Attention) -> Tensor:
    """Mask of pairs of tokens in the same word: (B, T, T)."""
    word = attention.query.word
    return (word[:, :, None] == word[:, None, :]) & (word >= 0)[:, :, None]


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
    return _mass(attention, keys), seen


@statistic
def eos(attention: Attention) -> Values:
    """Weight on </s>, mean over queries."""
    return _mass(attention, attention.key.eos), attention.queries


@statistic
def punctuation(attention: Attention) -> Values:
    """Weight on punctuation, mean over queries."""
    return _mass(attention, attention.key.punctuation), attention.queries


def _mass(attention: Attention, keys: Tensor) -> Tensor:
    """Total weight of each query on a set of keys (B, S): (B, H, T)."""
    return (attention.weights * keys[:, None, None, :]).sum(-1)
