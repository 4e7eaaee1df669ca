"""Attention weights that depend on positions only, for all but one head of an encoder.

Source: Raganato, Scherrer and Tiedemann 2020 (https://arxiv.org/abs/2002.10260), section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..dispatch import attend
from ..inputs import AttentionInputs
from .alpha_entmax import Softmax
from .base import Normalizer, register

PATTERNS = ("current", "previous", "next", "left", "right", "end", "start")


def fixed_patterns(key_padding_mask: Tensor | None, length: int, heads: int, like: Tensor) -> Tensor:
    """The first ``heads`` patterns for sentences of ``length`` positions.

    In a sentence of n tokens, counted from 0, query i attends to the current token (i), the previous one
    (i − 1), the next one (i + 1), the left context (j ≤ i − 2, in proportion to (j + 1)³), the right context
    (j ≥ i + 2, to (n − j)³), the end (all j, to (j + 1)³) or the start (all j, to (n − j)³). A query whose
    pattern has no token attends to nothing.

    Args:
        key_padding_mask: (B, S), true where a position is padding, on either side; None for none.
        length: S.
        heads: number of patterns, up to 7.
        like: a tensor with the dtype and the device of the result.

    Returns:
        Weights (B, heads, S, S), or (1, heads, S, S) without padding; zeros for padding.
    """
    if key_padding_mask is None:
        real = torch.ones([1, length], dtype=torch.bool, device=like.device)
    else:
        real = ~key_padding_mask
    place = real.cumsum(1) - 1
    n = real.sum(1)[:, None, None]
    i, j = place[:, :, None], place[:, None, :]
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    rising = (j + 1).to(dtype) ** 3
    falling = (n - j).to(dtype) ** 3
    patterns = torch.stack(
        [
            (j == i).to(dtype),
            (j == i - 1).to(dtype),
            (j == i + 1).to(dtype),
            rising * (j <= i - 2),
            falling * (j >= i + 2),
            rising.expand(-1, length, -1),
            falling.expand(-1, length, -1),
        ][:heads],
        dim=1,
    )
    patterns = patterns * (real[:, :, None] & real[:, None, :])[:, None]
    return (patterns / patterns.sum(-1, keepdim=True).clamp_min(1.0)).to(like.dtype)


@register
class FixedPatterns(Normalizer):
    """Fixed patterns in the first heads of a layer, softmax in the others, of which there is at least one.

    The first heads keep their projections of queries and keys, unused, so that checkpoints keep their form.
    """

    name, title = "fixed", "fixed patterns"
    equation = "by position in up to seven encoder heads; softmax in at least one, and in the decoder"
    source = "[Raganato et al. 2020](https://arxiv.org/abs/2002.10260), section 3"

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    @classmethod
    def build(cls, attention_type: str, num_heads: int, channels: int) -> Normalizer:
        """See the base class."""
        if attention_type != "encoder_self":
            return Softmax()
        if num_heads < 2:
            raise ValueError("an encoder needs at least 2 attention heads, of which one is learned, not 1")
        return cls(min(len(PATTERNS), num_heads - 1))

    def forward(self, inputs: AttentionInputs, backend: str) -> tuple[Tensor, Tensor | None]:
        """See the base class."""
        fixed, length, (query, key, value) = self.heads, inputs.key.size(2), inputs[:3]
        others = inputs._replace(query=query[:, fixed:], key=key[:, fixed:], value=value[:, fixed:])
        output, weights = attend(others, backend)
        patterns = fixed_patterns(inputs.key_padding_mask, length, fixed, value)
        patterns = patterns.expand(value.size(0), fixed, query.size(2), length)
        output = torch.cat([torch.matmul(patterns, value[:, :fixed]), output], dim=1)
        if weights is not None:
            weights = torch.cat([patterns, weights], dim=1)
        return output, weights
