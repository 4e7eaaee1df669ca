"""The public function: checks its arguments and selects an implementation.

The implementations are modules: ``dense`` takes all arguments; the fused kernels, ``cpu`` for a CPU and
``fused`` for a GPU, have a function ``supports`` that says which arguments they take.
"""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.checks import check_number
from ..entmax.operators import constant_in_graphs
from . import cpu
from .checks import check_dropout, check_shapes
from .dense import dense_attention
from .self_check import passes_check

BACKENDS = ("auto", "fused", "dense")
# For which the fused kernel for GPUs is faster than dense attention. On an H200 it takes 0.6 of its time at
# 32 keys and 1.9 times as long at 128; in 16 bits it is faster at any length.
MOST_KEYS_IN_FLOAT32 = 64

logger = logging.getLogger(__name__)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Union[float, Tensor],
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
    backend: str = "auto",
) -> Tuple[Tensor, Optional[Tensor]]:
    """Scaled dot-product attention with α-entmax: entmax(QKᵀ/√D) V.

    Args:
        query: (B, H, T, D), of any floating dtype; half precision is computed in float32, but on a GPU dense
            attention rounds scores and weights to it. Autocast has no effect on tensors of one dtype.
        key: (B, H, S, D).
        value: (B, H, S, D); dense attention also accepts a different last dimension.
        alpha: a number, or a tensor (H, 1, 1), one α per head, or (1, 1, 1). At least 1.
        key_padding_mask: (B, S), true where a key is padding, on either side.
        attn_mask: (T, S), added to the scores; or boolean, true where a query must not attend to a key.
        causal: query t attends to keys 0 … t only (T = S).
        dropout: probability of dropping a weight, after the normalizer.
        need_weights: also return the weights, before dropout.
        backend: the implementation. ``fused``: the kernel for the device, C++ on a CPU and Triton on a GPU,
            which does not store weights unless requested. ``dense``: scores and weights in memory, by torch
            and :func:`~user_dir.entmax.entmax`. ``auto``: the faster one for these arguments that supports
            them; on a CPU, softmax (``alpha`` the number 1) and small numbers of queries use dense attention,
            and so do more than 64 keys in float32 on a GPU. On a GPU ``auto`` uses the fused kernels only if
            they agree with plain torch on small problems, forward and backward, which is checked once per
            process for each device, dtype and head dimension (:mod:`.self_check`). ``fused`` is not checked.

    Returns:
        The output (B, H, T, D), and the weights (B, H, T, S) or None, in the dtype of ``query``.
        Differentiable in ``query``, ``key``, ``value`` and in an ``alpha`` tensor; twice only if dense, a
        second derivative of the fused kernels is an error. A query whose keys are all masked gets zeros.

    Raises:
        ValueError: shapes do not match (the message names them), also if ``causal`` although T ≠ S; α is
            below 1, infinite or NaN, except that on a GPU an invalid α tensor gives NaN instead; ``dropout``
            is not from 0 to 1; the backend is unknown; or a requested backend does not support the arguments
            (the message says why).

    In torch.compile, torch.export and ``torch.func`` the same kernels run, as operators of ``torch.library``;
    forward-mode differentiation is an error.

    In TorchScript it is always dense, α must be a tensor, and only the backend is checked.

    Source: Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), equation 1, with the α-entmax of Correia
    et al. 2019 (https://arxiv.org/abs/1909.00015) instead of softmax.
    """
    if not torch.jit.is_scripting():
        return _attention(
            query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights, backend
        )
    if backend != "auto" and backend != "dense":
        raise ValueError("in TorchScript the attention backend must be auto or dense, not " + backend)
    assert isinstance(alpha, Tensor)
    return dense_attention(
        query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights
    )


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Union[float, Tensor],
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    causal: bool,
    dropout: float,
    need_weights: bool,
    backend: str,
) -> Tuple[Tensor, Optional[Tensor]]:
    if backend not in BACKENDS:
        raise ValueError(f"unknown attention backend {backend!r}: choose from {', '.join(BACKENDS)}")
    check_shapes(query, key, value, key_padding_mask, attn_mask, causal)
    check_dropout(dropout)
    if not isinstance(alpha, Tensor):
        check_number(alpha)
    given = (query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights)
    if backend == "dense" or (backend == "auto" and _faster_dense(query, key, alpha)):
        return _dense(*given)
    reason = supports_fused(*given)
    if reason is None:
        kernels = fused_kernels(query.device.type)
        # An explicitly requested backend is used without a check.
        if backend == "fused" or kernels is cpu or passes_check(query):
            return kernels.fused_attention(*given)
        return _dense(*given)
    if backend == "fused":
        raise ValueError(f"fused attention does not take these arguments: {reason}")
    if not torch.compiler.is_compiling():
        _say_once(reason)
    return _dense(*given)


def _dense(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tuple[Tensor, Optional[Tensor]]:
    """Dense attention in the dtype of the tensors, as fused attention: without autocast."""
    device = query.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if autocast and query.dtype == key.dtype == value.dtype:
        with torch.autocast(device, enabled=False):
            return dense_attention(query, key, value, *others)
    return dense_attention(query, key, value, *others)


def supports_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> Optional[str]:
    """None if fused attention supports the arguments of :func:`attention`; else the reason why not."""
    device = query.device.type
    missing = None if device == "cpu" else no_fused_kernels(device)  # cpu searches for a compiler last
    if missing is not None:
        return missing
    return fused_kernels(device).supports(
        query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights
    )


@constant_in_graphs
def no_fused_kernels(device: str) -> Optional[str]:
    """Why there are no fused kernels for a device type, ``cpu`` or ``cuda``; None if there are."""
    if device == "cpu":
        return cpu.unavailable()
    if device == "cuda" and torch.version.hip is None and has_native(device):
        return None
    return f"fused kernels for {device} need an NVIDIA GPU, triton, and ENTMAX_BACKEND not to be reference"


def fused_kernels(device: str) -> ModuleType:
    """The module of the fused kernels for a device type."""
    if device == "cpu":
        return cpu
    from . import fused  # needs Triton

    return fused


def _faster_dense(query: Tensor, key: Tensor, alpha: float | Tensor) -> bool:
    if query.device.type == "cuda":
        return query.dtype == torch.float32 and key.size(-2) > MOST_KEYS_IN_FLOAT32
    softmax = not isinstance(alpha, Tensor) and alpha == 1
    return query.device.type == "cpu" and (softmax or query.size(-2) < cpu.LEAST_QUERIES)


@functools.cache
def _say_once(reason: str) -> None:
    logger.info("using dense attention instead of the fused kernel: %s", reason)
