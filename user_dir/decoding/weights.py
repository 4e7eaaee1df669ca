"""Weights of a Transformer with α-entmax attention, as the search in C++ takes them; without torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass
class Linear:
    """x ↦ xWᵀ + b.

    Attributes:
        weight: W, (outputs, inputs).
        bias: b, (outputs,).
    """

    weight: np.ndarray
    bias: np.ndarray | None = None


@dataclass
class Norm:
    """LayerNorm.

    Attributes:
        weight: (C,).
        bias: (C,).
        eps: added to the variance.
    """

    weight: np.ndarray
    bias: np.ndarray
    eps: float = 1e-5


@dataclass
class Attention:
    """Multi-head attention by α-entmax of scores divided by √D.

    Attributes:
        query: the projection of queries.
        key: that of keys.
        value: that of values.
        out: that of the outputs of all heads, side by side.
        alpha: float64 (H,), α of each head.
        scaling: w_β and w_γ of :class:`~user_dir.attention.length_scaling.LengthScaling`, each (H, C); None
            for no scaling.
        rela: s and g of :class:`~user_dir.attention.normalizers.rela.GatedRMSNorm`, each (C,), for weights
            and outputs as there, whatever α is; None for α-entmax.
    """

    query: Linear
    key: Linear
    value: Linear
    out: Linear
    alpha: np.ndarray
    scaling: tuple[Linear, Linear] | None = None
    rela: tuple[np.ndarray, np.ndarray] | None = None


@dataclass
class Layer:
    """A layer of the encoder, or of the decoder.

    Attributes:
        attention: self-attention.
        attention_norm: before or after it.
        context: attention to the source; None in the encoder, and in a decoder without.
        context_norm: before or after it.
        fc1: the first half of the feed-forward block.
        fc2: the second half, after the activation.
        final_norm: before or after both.
    """

    attention: Attention
    attention_norm: Norm
    context: Attention | None
    context_norm: Norm | None
    fc1: Linear
    fc2: Linear
    final_norm: Norm


@dataclass
class Side:
    """The encoder or the decoder.

    Attributes:
        embeddings: (V, C), or (V, C′) if they are projected.
        scale: that embeddings are multiplied by.
        projection_in: of scaled embeddings to the width of the layers; None for none.
        positions: (P, C), what is added to the embeddings of positions 0, 1, …; or a function that gives
            it for P; or None for nothing.
        embedding_norm: of the sum; None for none.
        layers: in order.
        pre_norm: LayerNorms come before the blocks of a layer instead of after residual connections.
        activation: ``relu`` or ``gelu``.
        norm: after the last layer; None for none.
    """

    embeddings: np.ndarray
    scale: float
    projection_in: Linear | None
    positions: np.ndarray | Callable[[int], np.ndarray] | None
    embedding_norm: Norm | None
    layers: list[Layer]
    pre_norm: bool
    activation: str
    norm: Norm | None


@dataclass
class Weights:
    """A whole model.

    Attributes:
        encoder: without ``projection_in``.
        decoder: see :class:`Side`.
        projection_out: of the decoder's features to the width of the output; None for none.
        output: from there to logits.
        output_alpha: α of the α-entmax that makes probabilities of logits.
    """

    encoder: Side
    decoder: Side
    projection_out: Linear | None
    output: Linear
    output_alpha: float = 1.0


ACTIVATIONS = ("relu", "gelu")


def sinusoids(count: int, width: int, padding: int) -> np.ndarray:
    """fairseq's sinusoids (count, width) of the first positions, float32, up to the rounding of exponents."""
    half = width // 2
    exponents = np.arange(half, dtype=np.float32) * np.float32(-(math.log(10000) / (half - 1)))
    rates = np.exp(exponents.astype(np.float64)).astype(np.float32)
    angles = np.arange(padding + 1, padding + 1 + count, dtype=np.float32)[:, None] * rates
    angles = angles.astype(np.float64)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return np.pad(table, ((0, 0), (0, width % 2)))
