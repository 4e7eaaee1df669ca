"""Attention by the native CPU kernel, ``cpu_attention.cpp``: scores, weights and output in one pass."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.masks import as_numbers
from ..entmax.once import once_differentiable
from ..entmax.operators import constant_in_graphs, is_eager, number_beside
from ..entmax.reference import working_dtype
from . import cpu_operators
from .backends import Backend
from .cpu_kernel import STORAGE, backward, forward, kernel
from .head_layouts import ONCE, dense_rows, gradient_of_alpha, in_heads, is_per_head
from .inputs import AttentionInputs

# With fewer queries most of a vector would be empty, so dense attention is faster.
MIN_QUERIES = 4


class CpuKernel(Backend):
    """Scores, weights and output in one pass; slower than dense attention for softmax and for few queries."""

    name, device = "fused", "cpu"

    def unavailable(self) -> Optional[str]:
        """See the base class."""
        return unavailable()

    def unsupported(self, inputs: AttentionInputs) -> Optional[str]:
        """See the base class."""
        return supports(inputs)

    def is_slow(self, inputs: AttentionInputs) -> bool:
        """See the base class."""
        alpha = inputs.alpha
        return inputs.query.size(-2) < MIN_QUERIES or (not isinstance(alpha, Tensor) and alpha == 1)

    def compute(self, inputs: AttentionInputs) -> tuple[Tensor, Optional[Tensor]]:
        """See the base class."""
        return fused_attention(inputs)


@constant_in_graphs
def unavailable() -> Optional[str]:
    """Why the kernel is not available; None if it is."""
    if has_native("cpu") and kernel() is not None:
        return None
    return "the fused kernel for the CPU needs a C++ compiler, and ENTMAX_BACKEND not to be reference"


def supports(inputs: AttentionInputs) -> Optional[str]:
    """None if the kernel supports the arguments of :func:`.dispatch.attention`; else the reason why not."""
    query, key, value, alpha, key_padding_mask, attn_mask, *_ = inputs
    if query.dtype not in STORAGE or not query.dtype == key.dtype == value.dtype:
        given = " and ".join(sorted({str(tensor.dtype) for tensor in (query, key, value)}))
        return f"on the CPU it supports queries, keys and values of the same floating dtype, not {given}"
    if query.size(-1) != value.size(-1):
        return f"keys have the head dimension {query.size(-1)}, but values {value.size(-1)}"
    if not query.numel() or not key.numel():
        return "there are no queries or no keys"
    if isinstance(alpha, Tensor) and not is_per_head(alpha, query.size(1)):
        return f"alpha has the shape {tuple(alpha.shape)}, not one entry per head"
    if key_padding_mask is not None and key_padding_mask.shape != (query.size(0), key.size(-2)):
        return f"the key padding mask broadcasts from {tuple(key_padding_mask.shape)}"
    if attn_mask is not None and attn_mask.shape != (query.size(-2), key.size(-2)):
        return f"the attn_mask broadcasts from {tuple(attn_mask.shape)}"
    if attn_mask is not None and attn_mask.requires_grad:
        return "the attn_mask needs a gradient"
    return unavailable()


def fused_attention(inputs: AttentionInputs) -> tuple[Tensor, Optional[Tensor]]:
    """Attention as :func:`.dispatch.attention` computes it, if :func:`supports` allows the arguments."""
    query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights = inputs
    if not isinstance(alpha, Tensor):
        alpha = number_beside(alpha, query)
    if attn_mask is not None:
        attn_mask = as_numbers(attn_mask, working_dtype(query.dtype))
    if key_padding_mask is not None:
        key_padding_mask = key_padding_mask.to(torch.bool).contiguous()
    # the kernel has its own generator, so that the backward pass can draw the same numbers again
    seed = torch.randint(2**62, ()) if dropout > 0.0 else None
    given = (query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, seed, need_weights)
    if not is_eager(*given[:6]):
        output, weights, _ = cpu_operators.attention(*given, torch.is_grad_enabled())
        return output, weights if need_weights else None
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given[:4]):
        output, weights = _Attention.apply(*given)
    else:
        (output, weights), _ = forward(*given, save=False)
    return in_heads(output), weights


class _Attention(torch.autograd.Function):
    """Autograd function around the kernel; saves its inputs and the kernel's form of the weights."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Optional[Tensor]]:
        """Output (T, B, H, D), and weights (B, H, T, S) if needed; arguments as for :func:`forward`."""
        query, key, value = (dense_rows(tensor) for tensor in given[:3])
        *others, ctx.causal, ctx.dropout, ctx.seed, _ = given[3:]
        arguments = [query, key, value, *given[3:], True]
        results, saved = forward(*arguments)
        ctx.save_for_backward(query, key, value, *others, *saved)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    @once_differentiable(ONCE)
    def backward(
        ctx: Any, grad: Optional[Tensor], grad_weights: Optional[Tensor]
    ) -> tuple[Optional[Tensor], ...]:
        """Gradients of queries, keys, values and α."""
        query, key, value, alpha, key_padding_mask, attn_mask, *saved = ctx.saved_tensors
        given = (query, key, value, alpha, key_padding_mask, attn_mask, ctx.causal, ctx.dropout, ctx.seed)
        grad = torch.zeros_like(query) if grad is None else in_heads(grad)
        grads, per_head = backward(*given, saved, grad, grad_weights, ctx.needs_input_grad[3])
        grad_alpha = None if per_head is None else gradient_of_alpha(per_head, alpha)
        return *grads, grad_alpha, *[None] * 6
