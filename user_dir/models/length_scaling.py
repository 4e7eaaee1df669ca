"""Queries scaled by the number of keys that they see: attention then spreads less over longer inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LengthScaling(nn.Module):
    """q (1 + β (log n)^γ) per head, with β = softplus(w_β h) and γ = 2 tanh(w_γ h) of the query's input h.

    n is the number of keys that the query sees, at least 2: a single key gets all weight anyway.

    Source: Vasylenko et al. 2025 (ASEntmax, https://arxiv.org/abs/2506.16640).
    """

    def __init__(self, channels: int, num_heads: int):
        super().__init__()
        self.beta = nn.Linear(channels, num_heads, bias=False)
        self.gamma = nn.Linear(channels, num_heads, bias=False)

    def forward(self, query: Tensor, inputs: Tensor, keys: Tensor) -> Tensor:
        """Scale queries.

        Args:
            query: (B, H, T, D).
            inputs: h, (T, B, C).
            keys: n, from :func:`visible_keys`; may have one row per sentence where ``query`` has several
                consecutive rows, the hypotheses of the sentence.
        """
        if keys.size(0) > 1 and keys.size(0) != query.size(0):
            keys = keys.repeat_interleave(query.size(0) // keys.size(0), dim=0)
        log_n = keys.t()[:, :, None].clamp_min(2.0).log().to(inputs.dtype)
        beta, gamma = F.softplus(self.beta(inputs)), 2.0 * torch.tanh(self.gamma(inputs))
        scale = 1.0 + beta * log_n**gamma  # (T, B, H)
        return query * scale.permute(1, 2, 0)[:, :, :, None]


def visible_keys(
    key_padding_mask: Tensor | None, attn_mask: Tensor | None, causal: bool, queries: int, key: Tensor
) -> Tensor:
    """The number of keys that each query sees: (B or 1, T or 1), float32.

    Args:
        key_padding_mask, attn_mask, causal: as for :func:`~user_dir.attention.attention`.
        queries: T.
        key: (B, H, S, D).
    """
    if key_padding_mask is None:
        real = torch.ones([1, key.size(2)], device=key.device)
    else:
        real = (~key_padding_mask).float()
    if attn_mask is None:
        return real.cumsum(1) if causal else real.sum(1, keepdim=True)
    hidden = attn_mask if attn_mask.dtype == torch.bool else attn_mask == -float("inf")
    seen = (~hidden).float().expand(queries, key.size(2))
    if causal:
        seen = seen.tril()
    return real @ seen.t()
