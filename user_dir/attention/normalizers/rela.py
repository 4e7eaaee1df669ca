"""Rectified linear attention (ReLA): weights ReLU(QKᵀ/√D), and a gated norm that bounds the output.

Source: Zhang, Titov and Sennrich 2021 (https://arxiv.org/abs/2104.07012), equations 5 to 7.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Normalizer, register


class GatedRMSNorm(nn.Module):
    """s ∘ x / rms(x) ∘ sigmoid(g ∘ x), with learned s and g of the size of x; computed in float32.

    Args:
        channels: C, the size of the last dimension.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        bound = (3 / channels) ** 0.5  # as in the authors' code
        self.gate = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) to (…, C); zeros give zeros."""
        wide = x if x.dtype == torch.float64 else x.float()
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-8)
        return (self.scale * wide * inverse * torch.sigmoid(self.gate * wide)).to(x.dtype)


@register
class ReLA(Normalizer):
    """ReLU of the scores. Weights do not sum to 1: the output goes through a :class:`GatedRMSNorm`."""

    name, title = "rela", "ReLA"
    equation = (
        "ReLU(s); the output of all heads, x, becomes s ∘ x / rms(x) ∘ sigmoid(g ∘ x), with learned s and g"
    )
    source = "[Zhang et al. 2021](https://arxiv.org/abs/2104.07012), equations 5 to 7"
    searchable = True

    @classmethod
    def output_norm(cls, channels: int) -> nn.Module:
        """See the base class."""
        return GatedRMSNorm(channels)

    def weights(self, scores: Tensor) -> Tensor:
        """See the base class."""
        return torch.relu(scores)
