"""Rectified linear attention (ReLA): weights ReLU(QKᵀ/√D), which a gated norm of the output keeps in bounds.

Source: Zhang, Titov and Sennrich 2021 (https://arxiv.org/abs/2104.07012), equations 5 to 7.
"""

from __future__ import annotations

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .dense import attention_scores


def rela_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """ReLU(QKᵀ/√D) V, with the arguments and results of :func:`.op.attention`; TorchScript can compile it.

    Weights do not sum to 1: the output of all heads together goes through a :class:`GatedRMSNorm`.
    """
    weights = torch.relu(attention_scores(query, key, key_padding_mask, attn_mask, causal))
    output = torch.matmul(F.dropout(weights, dropout) if dropout > 0.0 else weights, value)
    return output, weights if need_weights else None


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
