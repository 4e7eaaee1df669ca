"""The public attention: picks what computes it."""

from __future__ import annotations

import functools
import importlib
import logging
import math
from types import ModuleType
from typing import Optional, Tuple

import torch
from torch import Tensor

from ..entmax import has_native
from ..errors import UserError
from . import cpu
from .checks import check_shapes
from .dense import dense_attention
from .future import is_future_mask

BACKENDS = ("auto", "dense", "fused")

logger = logging.getLogger(__name__)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
    backend: str = "auto",
) -> Tuple[Tensor, Optional[Tensor]]:
    """Scaled dot-product attention with α-entmax: entmax(QKᵀ/√D) V.

    Args:
        query: (B, H, T, D).
        key: (B, H, S, D).
        value: (B, H, S, D).
        alpha: a number, or a tensor (H, 1, 1) or (1, 1, 1).
        key_padding_mask: (B, S), true where a key is padding, on either side.
        attn_mask: (T, S), added to the scores; or boolean, true where a key is hidden from a query.
        causal: query t sees keys 0 … t only (T = S).
        dropout: probability with which a weight is dropped, after the normalizer.
        need_weights: also return the weights, as they are before dropout.
        backend: of ``BACKENDS``; ``dense`` has the weights in memory, the others do not where there is a
            kernel for the device and the arguments.

    Returns:
        The output, (B, H, T, D), and the weights, (B, H, T, S), or None. A query all of whose keys are
        masked gets zeros.

    Raises:
        ValueError: shapes do not fit, or α is below 1, infinite or NaN.

    Source: Vaswani et al. 2017, equation 1; Correia et al. 2019, equation 9.
    """
    if not torch.jit.is_scripting():  # TorchScript knows no autograd functions
        check_shapes(query, key, value, key_padding_mask, attn_mask)
        found = None
        if backend != "dense":
            found = _fused(
                query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights
            )
        if found is not None:
            return found
    return dense_attention(
        query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights
    )


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    causal: bool,
    dropout: float,
    need_weights: bool,
) -> Optional[Tuple[Tensor, Optional[Tensor]]]:
    """What a fused kernel gives; None where there is none for the device or the arguments."""
    shape = (query.size(-2), key.size(-2))
    if attn_mask is not None and attn_mask.shape == shape and is_future_mask(attn_mask):
        attn_mask, causal = None, True
    if cpu.is_fit(query, key, value, alpha, key_padding_mask, attn_mask, dropout):
        return cpu.fused_attention(
            query, key, value, alpha, key_padding_mask, attn_mask, causal, need_weights
        )
    gpu = gpu_kernels(query.device.type)
    if gpu is None:
        return None
    given = (query, key, value, alpha, key_padding_mask)
    reason = gpu.why_not(*given, attn_mask, dropout, need_weights)
    if reason is not None:
        _say_once(reason)
        return None
    _check_number(alpha)
    return gpu.fused_attention(*given, causal, dropout, need_weights)


def gpu_kernels(device: str) -> Optional[ModuleType]:
    """The module with the fused kernels for GPUs if these are the ones for a kind of device, else None."""
    if device != "cuda" or torch.version.hip is not None or not has_native(device):
        return None
    return importlib.import_module(".fused", __package__)  # only here: it needs Triton


def require_fused(device: str) -> None:
    """Raise UserError where there are no fused kernels for a kind of device."""
    if device == "cpu" and has_native("cpu") and cpu.kernel() is not None:
        return
    if gpu_kernels(device) is None:
        needed = "a C++ compiler" if device == "cpu" else "triton"
        raise UserError(
            f"there are no fused kernels for {device} here, which need {needed}, and ENTMAX_BACKEND not to "
            "be reference; --attention-backend auto does without them"
        )


def _check_number(alpha: float | Tensor) -> None:
    if not isinstance(alpha, Tensor) and not 1 <= alpha < math.inf:
        raise ValueError(f"alpha must be at least 1 and finite, not {alpha}")


@functools.cache
def _say_once(reason: str) -> None:
    logger.info("attention that keeps its weights in memory takes the place of the fused kernel: %s", reason)
