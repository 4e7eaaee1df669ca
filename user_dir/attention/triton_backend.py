"""The backend for a GPU: the Triton kernels of :mod:`.fused`, which is imported when it is needed."""

from __future__ import annotations

from types import ModuleType
from typing import Optional, Tuple

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.operators import constant_in_graphs
from .backends import Backend
from .inputs import AttentionInputs
from .kernel_self_check import passes_check

# For which the kernels are faster than dense attention. On an H200 they take 0.6 of its time at 32 keys and
# 1.9 times as long at 128, but a third of it in a decoding step; in 16 bits they are faster at any length.
MOST_KEYS_IN_FLOAT32 = 64


class TritonKernels(Backend):
    """One kernel forward, one or two backward; used by ``auto`` only after :mod:`.kernel_self_check`."""

    name, device = "fused", "cuda"

    def unavailable(self) -> Optional[str]:
        """See the base class."""
        return unavailable()

    def unsupported(self, inputs: AttentionInputs) -> Optional[str]:
        """See the base class."""
        missing = unavailable()
        return kernels().supports(inputs) if missing is None else missing

    def is_slow(self, inputs: AttentionInputs) -> bool:
        """See the base class."""
        if inputs.query.size(-2) == 1 and not torch.is_grad_enabled():
            return False
        return inputs.query.dtype == torch.float32 and inputs.key.size(-2) > MOST_KEYS_IN_FLOAT32

    def is_trusted(self, inputs: AttentionInputs) -> bool:
        """See the base class."""
        if not passes_check(inputs.query):
            return False
        return not kernels().is_long_step(inputs) or passes_check(inputs.query, long_step=True)

    def compute(self, inputs: AttentionInputs) -> Tuple[Tensor, Optional[Tensor]]:
        """See the base class."""
        computed: Tuple[Tensor, Optional[Tensor]] = kernels().fused_attention(inputs)
        return computed


@constant_in_graphs
def unavailable() -> Optional[str]:
    """Why there are no kernels; None if there are."""
    if torch.version.hip is None and has_native("cuda"):
        return None
    return "fused kernels for cuda need an NVIDIA GPU, triton, and ENTMAX_BACKEND not to be reference"


def kernels() -> ModuleType:
    """The module of the kernels, which needs Triton."""
    from . import fused

    return fused
