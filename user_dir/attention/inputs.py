"""The arguments of attention, which ops, kernels, normalizers and modules pass on as one."""

from __future__ import annotations

from typing import NamedTuple, Optional, Union

from torch import Tensor


class AttentionInputs(NamedTuple):
    """Arguments of :func:`.dispatch.attention`, as a named tuple, which TorchScript knows."""

    query: Tensor  # (B, H, T, D)
    key: Tensor  # (B, H, S, D)
    value: Tensor  # (B, H, S, D)
    alpha: Union[float, Tensor]  # a number, or (H, 1, 1), or (1, 1, 1)
    key_padding_mask: Optional[Tensor] = None  # (B, S)
    attn_mask: Optional[Tensor] = None  # (T, S)
    causal: bool = False
    dropout: float = 0.0
    need_weights: bool = False


class KernelInputs(NamedTuple):
    """What a fused kernel computes from, and the schema of its operators."""

    query: Tensor
    key: Tensor
    value: Tensor
    alpha: Tensor  # a single number, or (H, 1, 1)
    key_padding_mask: Optional[Tensor]  # (B, S), boolean
    attn_mask: Optional[Tensor]  # (T, S), added to the scores
    causal: bool
    dropout: float
    seed: Optional[Tensor]  # of dropout, a single number; None without dropout
