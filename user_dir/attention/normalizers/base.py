"""The base class of normalizers, and their registry."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from ..dense import scores_and_values, weighted_values
from ..inputs import AttentionInputs


class Normalizer(nn.Module):
    """How the heads of one attention module turn scores into weights, and weights into outputs.

    A new normalizer is a subclass in a file of its own, decorated with :func:`register`. It defines
    :meth:`weights`; or :meth:`forward`, if it has an α, changes queries or values, or treats some heads
    differently. It may have parameters.

    Attributes:
        name: the value of ``--attention-normalizer``.
        title: its name in tables.
        equation: its weights as a function of the scores s.
        source: paper and equation.
        alpha: α of every head; None if it is learned or scheduled. Where the equation has no α, it is 1.
        searchable: whether our beam searches (:mod:`~user_dir.decoding`) can compute it. They compute ReLA
            if it has an :meth:`output_norm`, else α-entmax. Subclasses, which may compute something else, do
            not inherit it.
    """

    name = title = equation = source = ""
    alpha: float | None = 1.0
    searchable = False

    @classmethod
    def build(cls, attention_type: str, num_heads: int, channels: int) -> Normalizer:
        """The normalizer of an attention module; raises ValueError if it does not support such heads.

        Args:
            attention_type: one of :data:`~user_dir.attention.types.ATTENTION_TYPES`.
            num_heads: H.
            channels: C, of all heads together.
        """
        return cls()

    @classmethod
    def output_norm(cls, channels: int) -> nn.Module | None:
        """A module applied to the concatenated outputs of all heads (…, C), or None."""
        return None

    def forward(self, inputs: AttentionInputs, backend: str) -> tuple[Tensor, Tensor | None]:
        """The output (B, H, T, D), and the weights (B, H, T, S) before dropout if ``inputs`` needs them.

        Args:
            inputs: of attention.
            backend: the implementation, where there are several; see :func:`~user_dir.attention.attention`.
        """
        scores, value = scores_and_values(inputs)
        # A row of −∞, or −∞ times a parameter, would give NaN, in gradients too.
        hidden = scores == -float("inf")
        lowest = -3e4 if scores.dtype == torch.float16 else -1e30
        weights = self.weights(scores.masked_fill(hidden, lowest)).masked_fill(hidden, 0.0)
        return weighted_values(weights, value, inputs)

    def weights(self, scores: Tensor) -> Tensor:
        """Weights of scores, (B, H, T, S), in the scores' dtype.

        Masked keys have finite, very low scores; ``forward`` sets their weights to 0, even if all are masked.
        """
        raise NotImplementedError


NORMALIZERS: dict[str, type[Normalizer]] = {}
"""All normalizers by name."""

_Class = TypeVar("_Class", bound=type[Normalizer])


def register(normalizer: _Class) -> _Class:
    """Add a normalizer to :data:`NORMALIZERS`; a decorator.

    Raises:
        ValueError: the name is taken, or the class lacks its own name, title, equation or source.
    """
    for attribute in ("name", "title", "equation", "source"):
        if not vars(normalizer).get(attribute):
            raise ValueError(f"the normalizer {normalizer.__name__} lacks its own {attribute}")
    if normalizer.name in NORMALIZERS:
        raise ValueError(f"there is already a normalizer {normalizer.name!r}; give it another name")
    NORMALIZERS[normalizer.name] = normalizer
    return normalizer
