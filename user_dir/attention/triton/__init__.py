"""The backend for a GPU: Triton kernels, whose modules are imported when they are needed."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Optional, Tuple

import torch
from torch import Tensor

from ...entmax import has_native, reference, self_check
from ...entmax.op import Entmax
from ...entmax.operators import constant_in_graphs
from ..dense import attention_scores
from ..inputs import AttentionInputs, Backend

# For which the kernels are faster than dense attention. On an H200 they take 0.6 of its time at 32 keys and
# 1.9 times as long at 128, but a third of it in a decoding step; in 16 bits they are faster at any length.
MOST_KEYS_IN_FLOAT32 = 64


class TritonKernels(Backend):
    """One kernel forward, one or two backward; used by ``auto`` only after the self-check."""

    name, device = "fused", "cuda"

    def unavailable(self) -> Optional[str]:
        """See the base class."""
        return unavailable()

    def unsupported(self, inputs: AttentionInputs) -> Optional[str]:
        """See the base class."""
        missing = unavailable()
        return kernel_module().supports(inputs) if missing is None else missing

    def is_slow(self, inputs: AttentionInputs) -> bool:
        """See the base class."""
        if inputs.query.size(-2) == 1 and not torch.is_grad_enabled():
            return False
        return inputs.query.dtype == torch.float32 and inputs.key.size(-2) > MOST_KEYS_IN_FLOAT32

    def is_trusted(self, inputs: AttentionInputs) -> bool:
        """See the base class. Long decoding steps are checked apart: a training need not compile them."""
        query = inputs.query
        given = query.device, query.dtype, int(query.size(-1))
        return passes_check(*given) and (
            not kernel_module().is_long_step(inputs) or passes_check(*given, True)
        )

    def compute(self, inputs: AttentionInputs) -> Tuple[Tensor, Optional[Tensor]]:
        """See the base class."""
        return kernel_module().fused_attention(inputs)


@constant_in_graphs
def unavailable() -> Optional[str]:
    """Why there are no kernels; None if there are."""
    if torch.version.hip is None and has_native("cuda"):
        return None
    return "fused kernels for cuda need an NVIDIA GPU, triton, and ENTMAX_BACKEND not to be reference"


def kernel_module() -> ModuleType:
    """The module of the kernels, which needs Triton."""
    from . import kernels

    return kernels


@constant_in_graphs
def passes_check(device: torch.device, dtype: torch.dtype, head_dim: int, long_step: bool = False) -> bool:
    """Whether the kernels compute what plain torch does; False while a CUDA graph is captured unchecked."""
    highest = dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    kind = device, dtype, head_dim, long_step, "highest" if highest else "high"
    return bool(self_check.passes("fused attention", _problems, *kind))


def _problems(
    generator: torch.Generator, dtype: torch.dtype, head_dim: int, long_step: bool, precision: str
) -> self_check.Problems:
    """One for each kernel; no length is a multiple of a tile."""
    module, size, heads = kernel_module(), dtype.itemsize, len(self_check.ALPHAS)
    longest, tile, resident = module.ONE_KERNEL[size] - 3, module.TILE[size], module.RESIDENT
    lengths = [(longest, longest), (19, resident - 3), (tile + 5, resident + 7), (1, 13)]
    for queries, keys in [(1, resident + 7)] if long_step else lengths:
        drawn = [
            1.5 * torch.randn(length, 2, heads, head_dim, generator=generator).permute(1, 2, 0, 3)
            for length in (queries, keys, keys)
        ]
        alpha = torch.tensor(self_check.ALPHAS).view(-1, 1, 1)
        padding = torch.arange(keys) < torch.tensor([[0], [keys // 3]])
        masks = padding, queries == keys, queries == 1
        yield partial(_by_kernel, *masks), partial(_by_torch, *masks), [*drawn, alpha]


def _by_kernel(
    padding: Tensor, causal: bool, step: bool, query: Tensor, key: Tensor, value: Tensor, alpha: Tensor
) -> tuple[Tensor, ...]:
    padding = padding.to(query.device)
    inputs = AttentionInputs(query, key, value, alpha, padding, None, causal, 0.0, step)
    with torch.set_grad_enabled(not step):
        output, weights = kernel_module().fused_attention(inputs)
    return (output, weights) if step else (output,)


def _by_torch(padding: Tensor, causal: bool, step: bool, *given: Tensor) -> tuple[Tensor, ...]:
    query, key, value, alpha = given
    weights = Entmax.apply(attention_scores(query, key, padding, None, causal), alpha, -1, reference)
    return (weights @ value, weights) if step else (weights @ value,)
