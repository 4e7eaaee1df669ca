"""α-entmax, with a learned α and with constant ones."""

from __future__ import annotations

from torch import Tensor

from ..dispatch import attend
from ..inputs import AttentionInputs
from .base import Normalizer, register


class AlphaEntmax(Normalizer):
    """α-entmax of the scores, computed by an attention backend."""

    def forward(self, inputs: AttentionInputs, backend: str) -> tuple[Tensor, Tensor | None]:
        """See the base class."""
        return attend(inputs, backend)


@register
class Entmax(AlphaEntmax):
    """α-entmax with the α that :class:`~user_dir.attention.Alpha` has."""

    name, title = "entmax", "α-entmax"
    equation = "[(α − 1) s − τ]₊^(1 / (α − 1))"
    source = "[Correia et al. 2019](https://arxiv.org/abs/1909.00015), section 3.2"
    alpha = None
    searchable = True


@register
class Entmax15(AlphaEntmax):
    """α-entmax with α = 1.5."""

    name, title = "entmax15", "1.5-entmax"
    equation = "[s/2 − τ]₊²: α-entmax with α = 1.5"
    source = "[Peters et al. 2019](https://arxiv.org/abs/1905.05702), equation 10"
    alpha = 1.5
    searchable = True


@register
class Sparsemax(AlphaEntmax):
    """α-entmax with α = 2."""

    name, title = "sparsemax", "sparsemax"
    equation = "[s − τ]₊: α-entmax with α = 2"
    source = "[Martins and Astudillo 2016](https://arxiv.org/abs/1602.02068), equation 2"
    alpha = 2.0
    searchable = True


@register
class Softmax(AlphaEntmax):
    """α-entmax with α = 1."""

    name, title = "softmax", "softmax"
    equation = "exp(s) / Σ exp(s): α-entmax with α = 1"
    source = "[Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), equation 1"
    searchable = True
