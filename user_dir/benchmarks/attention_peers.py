"""The attentions to compare: ours, other α-entmax, and softmax by PyTorch and FlashAttention."""

from __future__ import annotations

import importlib

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..attention import attention
from .contenders import PER_HEAD, Contender

FLASH, EFFICIENT = "softmax, SDPA flash", "softmax, SDPA memory-efficient"
CUDNN = "softmax, SDPA cuDNN"
FLASH_2, FLASH_3 = "softmax, FlashAttention-2", "softmax, FlashAttention-3"
FAIRSEQ, BISECTION = "softmax, as fairseq's context attention", "entmax_bisect, 50 steps"
ADASPLASH, ADASPLASH_2 = "AdaSplash v1", "AdaSplash-2"
FUSED, FUSED_15, DENSE = "ours, fused", "ours, fused at 1.5", "ours, dense"
BEST = "the fastest softmax"  # of those that follow
SOFTMAX = (FLASH, CUDNN, EFFICIENT, FLASH_2, FLASH_3)


def contenders(causal: bool) -> tuple[Contender, ...]:
    """Ours and others; under a causal mask those that need no mask in memory. AdaSplash-2 is causal only."""

    def sdpa(name: str, backend: SDPBackend) -> Contender:
        return Contender(name, 1.0, lambda q, k, v, alpha: _sdpa(backend, q, k, v, causal), square=causal)

    def ours(name: str, alpha: float | str, backend: str = "fused") -> Contender:
        def call(q, k, v, alpha):
            return attention(q, k, v, alpha, causal=causal, backend=backend)[0]

        return Contender(name, alpha, call, square=causal)

    softmax = (
        sdpa(FLASH, SDPBackend.FLASH_ATTENTION),
        sdpa(CUDNN, SDPBackend.CUDNN_ATTENTION),
        sdpa(EFFICIENT, SDPBackend.EFFICIENT_ATTENTION),
        Contender(FLASH_2, 1.0, lambda *given: _flash("flash_attn", causal, *given), square=causal),
        Contender(FLASH_3, 1.0, lambda *given: _flash("flash_attn_interface", causal, *given), square=causal),
    )
    fused = (ours(FUSED_15, 1.5), ours(FUSED, PER_HEAD))
    if causal:
        return *softmax, Contender(ADASPLASH_2, 1.5, _adasplash_2, square=True), *fused
    return (
        *softmax,
        Contender(FAIRSEQ, 1.0, lambda q, k, v, alpha: _bmm_and_softmax(q, k, v)),
        Contender(BISECTION, PER_HEAD, lambda q, k, v, alpha: _bisection(q, k, v, alpha)),
        Contender(ADASPLASH, 1.5, lambda q, k, v, alpha: _adasplash(q, k, v, alpha), square=True),
        ours(DENSE, PER_HEAD, "dense"),
        *fused,
    )


def _sdpa(backend: SDPBackend, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    # A CPU has none of these; other backends are used there, as a rehearsal.
    with sdpa_kernel([backend] if query.is_cuda else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal)


def _flash(package: str, causal: bool, query: Tensor, key: Tensor, value: Tensor, alpha: float) -> Tensor:
    """FlashAttention by its own package, which takes (B, T, H, D)."""
    function = importlib.import_module(package).flash_attn_func
    output = function(*(tensor.transpose(1, 2) for tensor in (query, key, value)), causal=causal)
    return (output[0] if isinstance(output, tuple) else output).transpose(1, 2)


def _bmm_and_softmax(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scaled queries, bmm, softmax in float32, bmm, as in ``fairseq.modules.MultiheadAttention``."""
    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
    return torch.matmul(torch.softmax(scores, -1, dtype=torch.float32).type_as(scores), value)


def _bisection(query: Tensor, key: Tensor, value: Tensor, alpha: float | Tensor) -> Tensor:
    from entmax import entmax_bisect

    scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
    return torch.matmul(entmax_bisect(scores.float(), alpha).type_as(scores), value)


def _adasplash(query: Tensor, key: Tensor, value: Tensor, alpha: float) -> Tensor:
    import adasplash

    first = getattr(adasplash, "adasplash_v1", adasplash.adasplash)
    query, key, value = (tensor.contiguous() for tensor in (query, key, value))  # AdaSplash requires this
    return first(query, key, value, alpha=alpha, is_causal=False)


def _adasplash_2(query: Tensor, key: Tensor, value: Tensor, alpha: float) -> Tensor:
    """What ``adasplash.adasplash`` takes since 0.2.0 for a causal mask and α = 1.5."""
    from adasplash import adasplash_v2

    return adasplash_v2(*(tensor.contiguous() for tensor in (query, key, value)))
