"""Measures of attention weights, one pure function per definition.

Shapes: weights are (B, H, T, S) for B sentences, H heads, T queries and S keys, 0 where either is padding. A
measure per query is (B, H, T), with a mask (B, T) of the queries for which it is defined; the caller averages
over those. float64 weights are measured in float64.

Definitions are those of Correia, Niculae and Martins 2019, section 5 and appendix, unless stated otherwise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def support(weights: Tensor, possible: Tensor) -> tuple[Tensor, Tensor]:
    """Number of keys that a head attends to, over all queries of a sentence.

    ``possible`` (B, T, S) masks the existing pairs of query and key.

    Returns:
        The number of weights strictly above 0, (B, H), and the number of pairs, (B,). Their quotient is the
        density. With s source and t target tokens there are s² pairs in the encoder, t(t + 1)/2 in decoder
        self-attention and s·t in context attention.
    """
    attended = (weights > 0) & possible[:, None]
    return attended.sum((2, 3)), possible.sum((1, 2))


def entropy(weights: Tensor) -> Tensor:
    """Shannon entropy of each query's attention in nats, with 0·log 0 = 0: (B, H, T)."""
    return torch.special.entr(weights).sum(-1)


def diversity(weights: Tensor) -> Tensor:
    """Jensen–Shannon divergence between the heads of a layer, per query: (B, T), from 0 (identical) to 1.

    ``JS = H(mean_j p_j) − mean_j H(p_j)``, divided by its bound log(number of heads); NaN for a single head.
    """
    mixture = entropy(weights.mean(1, keepdim=True))[:, 0]
    bound = math.log(weights.size(1)) or math.nan
    return (mixture - entropy(weights).mean(1)) / bound


def weight_at_offset(
    weights: Tensor, query_position: Tensor, key_position: Tensor, possible: Tensor, offset: int
) -> tuple[Tensor, Tensor]:
    """Weight of query q on key q + offset; its mean is the positional confidence.

    Positions, of queries (B, T) and keys (B, S), are those in the sentence, and ``possible`` (B, T, S) masks
    the existing pairs. Returns the weights (B, H, T), and a mask (B, T) of the queries for which this key
    exists. In decoder self-attention there is none at offset +1.
    """
    there = (key_position[:, None, :] == query_position[:, :, None] + offset) & possible  # (B, T, S)
    return (weights * there[:, None]).sum(-1), there.any(-1)


def mass(weights: Tensor, keys: Tensor) -> Tensor:
    """Total weight of each query on a set of keys (B, S): (B, H, T)."""
    return (weights * keys[:, None, None, :]).sum(-1)


def mass_in_word(weights: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
    """Weight of each query of self-attention within its own word: the second measure of subword merging.

    For a word of one piece, its self-weight. ``word`` (B, T) has the index of each token's word in its
    sentence, −1 for none. Returns the weights (B, H, T), and a mask (B, T) of queries in a word.
    """
    return (weights * _same_word(word)[:, None]).sum(-1), word >= 0


def subword_merging(weights: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
    """How much the pieces of each word attend to one another: the first measure of subword merging.

    For a word of several pieces, the largest total weight that one of them gives to the others; for a word of
    one piece, its self-weight.

    ``word`` is as in :func:`mass_in_word`.

    Returns:
        The values (B, H, W), with W the largest number of words in a sentence, and the number of pieces of
        each word, (B, W): 0 where there is no such word.
    """
    same = _same_word(word)
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
    return merged[..., :count], pieces[:, :count]


def _same_word(word: Tensor) -> Tensor:
    """Mask of pairs of tokens in the same word: (B, T, T)."""
    return (word[:, :, None] == word[:, None, :]) & (word >= 0)[:, :, None]
