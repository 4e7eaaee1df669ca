"""The backend for a CPU: the native kernel of :mod:`.cpu_kernel`."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.operators import constant_in_graphs
from .backends import Backend
from .cpu_kernel import STORAGE, CpuAttention, kernels
from .fused_kernel import unsupported
from .inputs import AttentionInputs

# With fewer queries most of a vector would be empty, so dense attention is faster.
MIN_QUERIES = 4

KERNEL = CpuAttention()
fused_attention = KERNEL.attention


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
        if not isinstance(alpha, Tensor) and alpha == 1:
            return True
        # an exported graph is for any number of queries
        return not torch.compiler.is_exporting() and inputs.query.size(-2) < MIN_QUERIES

    def compute(self, inputs: AttentionInputs) -> tuple[Tensor, Optional[Tensor]]:
        """See the base class."""
        return fused_attention(inputs)


@constant_in_graphs
def unavailable() -> Optional[str]:
    """Why the kernel is not available; None if it is."""
    if has_native("cpu") and kernels.available():
        return None
    return "the fused kernel for the CPU needs a C++ compiler, and ENTMAX_BACKEND not to be reference"


def supports(inputs: AttentionInputs) -> Optional[str]:
    """None if the kernel supports the arguments of :func:`.dispatch.attention`; else the reason why not."""
    query, key, _, _, _, attn_mask, *_ = inputs
    reason = unsupported(inputs, STORAGE)
    if reason is None and attn_mask is not None and attn_mask.shape != (query.size(-2), key.size(-2)):
        return f"the attn_mask broadcasts from {tuple(attn_mask.shape)}"
    if reason is None and attn_mask is not None and attn_mask.requires_grad:
        return "the attn_mask needs a gradient"
    return reason or unavailable()
