"""What is measured of attention weights: one pure function for each definition.

Shapes: weights are (B, H, T, S), of B sentences, H heads, T queries and S keys, 0 where either is padding.
A measure of queries is (B, H, T), with a mask (B, T) of the queries it is defined for; the caller averages
over those. Weights in float64 are measured in float64.

The definitions are those of Correia, Niculae and Martins 2019, section 5 and appendix, unless said otherwise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def support(weights: Tensor, possible: Tensor) -> tuple[Tensor, Tensor]:
    """How many keys a head attends to, over all queries of a sentence.

    Args:
        weights: (B, H, T, S).
        possible: which pairs of query and key there are, (B, T, S).

    Returns:
        The number of weights above 0, exactly and with no tolerance, (B, H), and the number of pairs, (B,).
        Their quotient is the density: with s source and t target tokens, over s² pairs in the encoder,
        t(t + 1)/2 in decoder self-attention and s·t in context attention.
    """
    attended = (weights > 0) & possible[:, None]
    return attended.sum((2, 3)), possible.sum((1, 2))


def entropy(weights: Tensor) -> Tensor:
    """Shannon entropy of each query's attention in nats, 0·log 0 = 0: (B, H, T)."""
    return torch.special.entr(weights).sum(-1)


def diversity(weights: Tensor) -> Tensor:
    """Jensen–Shannon divergence of a layer's heads, for each query: (B, T), from 0 (all alike) to 1.

    ``JS = H(mean_j p_j) − mean_j H(p_j)``, over its bound log(number of heads); NaN for a single head.
    """
    mixture = entropy(weights.mean(1, keepdim=True))[:, 0]
    bound = math.log(weights.size(1)) or math.nan
    return (mixture - entropy(weights).mean(1)) / bound


def weight_at_offset(
    weights: Tensor, query_position: Tensor, key_position: Tensor, possible: Tensor, offset: int
) -> tuple[Tensor, Tensor]:
    """Weight of query q on key q + offset: what positional confidence is the mean of.

    Args:
        weights: (B, H, T, S).
        query_position: place of each query within its sentence, (B, T).
        key_position: the same of the keys, (B, S).
        possible: which pairs there are, (B, T, S).
        offset: −1 for the previous position, 0 for the current one, +1 for the next.

    Returns:
        (B, H, T), and for which queries there is such a key: (B, T). In decoder self-attention there is none
        at +1.
    """
    there = (key_position[:, None, :] == query_position[:, :, None] + offset) & possible  # (B, T, S)
    return (weights * there[:, None]).sum(-1), there.any(-1)


def mass(weights: Tensor, keys: Tensor) -> Tensor:
    """Weight of each query on a set of keys (B, S) altogether: (B, H, T)."""
    return (weights * keys[:, None, None, :]).sum(-1)


def mass_in_word(weights: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
    """Weight of each query of self-attention inside its own word: the second figure of subword merging.

    Args:
        weights: (B, H, T, T).
        word: number of each token's word within its sentence, −1 for none, (B, T).

    Returns:
        (B, H, T), and which queries are in a word, (B, T). A word of one piece counts with its self-weight.
    """
    return (weights * _same_word(word)[:, None]).sum(-1), word >= 0


def subword_merging(weights: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
    """How much the pieces of each word attend to one another: the first figure of subword merging.

    For a word of several pieces, the largest weight that any of them gives to the others altogether; for a
    word of one piece, its self-weight.

    Args:
        weights: of self-attention, (B, H, T, T).
        word: number of each token's word within its sentence, −1 for none, (B, T).

    Returns:
        By word, (B, H, W) with W the largest number of words in a sentence, and the number of pieces of each
        word, (B, W): 0 where there is no such word.
    """
    same = _same_word(word)
    itself = torch.eye(word.size(1), dtype=torch.bool, device=word.device)
    single = same.sum(-1) == 1  # (B, T)
    counted = torch.where(single[:, :, None], same & itself, same & ~itself)
    to_others = (weights * counted[:, None]).sum(-1)  # (B, H, T)

    # Tokens of no word go to a last column, which is then dropped.
    count = int(word.max()) + 1
    column = word.masked_fill(word < 0, count)
    pieces = torch.zeros(word.size(0), count + 1, dtype=torch.long, device=word.device)
    pieces.scatter_add_(1, column, torch.ones_like(column))
    merged = weights.new_zeros(word.size(0), weights.size(1), count + 1)
    merged.scatter_reduce_(2, column[:, None].expand_as(to_others), to_others, "amax")
    return merged[..., :count], pieces[:, :count]


def _same_word(word: Tensor) -> Tensor:
    """Which pairs of tokens are of one word: (B, T, T)."""
    return (word[:, :, None] == word[:, None, :]) & (word >= 0)[:, :, None]
