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
