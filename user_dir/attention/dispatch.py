"""The public function: checks its arguments and selects a backend."""

from __future__ import annotations

import torch
from torch import Tensor

from . import cpu, triton
from .dense import Dense
from .inputs import AttentionInputs, Backend, check_inputs

TABLE: tuple[Backend, ...] = (cpu.KERNEL, triton.KERNEL, Dense())
"""All backends. ``auto`` takes the first that is preferred; the last one takes all arguments."""

BACKENDS = ("auto", *dict.fromkeys(backend.name for backend in TABLE))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: float | Tensor,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    need_weights: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention with α-entmax: entmax(QKᵀ/√D) V.

    Args:
        query: (B, H, T, D), of any floating dtype; half precision is computed in float32, but on a GPU dense
            attention rounds scores and weights to half precision.
        key: (B, H, S, D).
        value: (B, H, S, D); dense attention also accepts a different last dimension.
        alpha: a number, or a tensor (H, 1, 1), one α per head, or (1, 1, 1). At least 1.
        key_padding_mask: boolean (B, S), true where a key is padding, on either side.
        attn_mask: what broadcasts to (B, H, T, S), such as (T, S): added to the scores; or boolean, true
            where a query must not attend to a key.
        causal: query t attends to keys 0 … t only (T = S).
        dropout: probability of dropping a weight, after the normalizer.
        need_weights: also return the weights, before dropout.
        backend: the implementation. ``fused``: the kernel for the device, C++ on a CPU and Triton on a GPU,
            which does not store all weights of long rows unless requested. ``dense``: scores and weights in
            memory, by torch and :func:`~user_dir.entmax.entmax`. ``auto``: the faster one that supports these
            arguments; on a GPU, ``fused`` only if it agrees with plain torch on small problems, checked once.

    Returns:
        The output (B, H, T, D), and the weights (B, H, T, S) or None, in the dtype of ``query``.
        Differentiable in ``query``, ``key``, ``value`` and in an ``alpha`` tensor; twice only if dense. A
        query whose keys are all masked gets zeros.

    Raises:
        ValueError: shapes, dtypes, α, ``dropout`` or the backend do not fit; the message says which. On a GPU
            an invalid α tensor gives NaN instead.

    Source: Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), equation 1, with the α-entmax of Correia
    et al. 2019 (https://arxiv.org/abs/1909.00015) instead of softmax.
    """
    inputs = AttentionInputs(
        query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights
    )
    return attend(inputs, backend)


def attend(inputs: AttentionInputs, backend: str) -> tuple[Tensor, Tensor | None]:
    """:func:`attention`, with its arguments in one tuple."""
    check_inputs(inputs)
    device = inputs.query.device.type
    if backend == "auto":
        candidates = (entry for entry in TABLE if entry.device in (device, None))
        chosen = next(candidate for candidate in candidates if candidate.is_preferred(inputs))
    else:
        chosen = _backend(backend, device)
        reason = chosen.unsupported(inputs)
        if reason is not None:
            raise ValueError(f"{backend} attention does not take these arguments: {reason}")
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if autocast and inputs.query.dtype == inputs.key.dtype == inputs.value.dtype:
        with torch.autocast(device, enabled=False):
            return chosen.compute(inputs)
    return chosen.compute(inputs)


def _backend(name: str, device: str) -> Backend:
    for backend in TABLE:
        if backend.name == name and backend.device in (device, None):
            return backend
    raise ValueError(
        f"there is no attention backend {name!r} for {device}: choose from {', '.join(BACKENDS)}"
    )


def unavailable(name: str, device: str) -> str | None:
    """Why a backend cannot be used on a type of device, such as ``cpu``; None if it can."""
    return None if name == "auto" else _backend(name, device).unavailable()
