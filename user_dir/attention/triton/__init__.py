"""The backend for a GPU: Triton kernels, whose modules are imported when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Optional, Tuple

import torch
from torch import Tensor

from ...entmax import has_native, self_check
from ...entmax.operators import constant_in_graphs
from ..dense import dense_attention
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
        return unavailable() or kernel_module().KERNEL.unsupported(inputs)

    def is_preferred(self, inputs: AttentionInputs) -> bool:
        """See the base class."""
        query, keys = inputs.query, inputs.key.size(-2)
        step = query.size(-2) == 1 and not torch.is_grad_enabled()
        if query.dtype == torch.float32 and keys > MOST_KEYS_IN_FLOAT32 and not step:
            return False
        supported = super().is_preferred(inputs)
        return supported and passes_check(query.device, query.dtype, int(query.size(-1)))

    def compute(self, inputs: AttentionInputs) -> Tuple[Tensor, Optional[Tensor]]:
        """See the base class."""
        return kernel_module().KERNEL.compute(inputs)


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
def passes_check(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the kernels compute what plain torch does; False while a CUDA graph is captured unchecked."""
    highest = dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    kind = device, dtype, head_dim, "highest" if highest else "high"
    return bool(self_check.passes("fused attention", _problems, *kind))


def _problems(
    generator: torch.Generator, dtype: torch.dtype, head_dim: int, precision: str
) -> self_check.Problems:
    """One for each kernel; no length is a multiple of a tile."""
    module, size, heads = kernel_module(), dtype.itemsize, len(self_check.ALPHAS)
    longest, tile, resident = module.ONE_KERNEL[size] - 3, module.TILE[size], module.RESIDENT
    steps = [(1, 13), (1, resident + 7)]
    for queries, keys in [(longest, longest), (19, resident - 3), (tile + 5, resident + 7), *steps]:
        drawn = [
            1.5 * torch.randn(length, 2, heads, head_dim, generator=generator).permute(1, 2, 0, 3)
            for length in (queries, keys, keys)
        ]
        alpha = torch.tensor(self_check.ALPHAS).view(-1, 1, 1)
        padding = torch.arange(keys) < torch.tensor([[0], [keys // 3]])
        given = padding, queries == keys, queries == 1
        kernel, plain = (partial(_outputs, each, *given) for each in (module.KERNEL.compute, dense_attention))
        yield kernel, plain, [*drawn, alpha]


def _outputs(compute: Callable, padding: Tensor, causal: bool, step: bool, *given: Tensor) -> list[Tensor]:
    """The output, and the weights of a decoding step."""
    query, key, value, alpha = given
    padding = padding.to(query.device)
    inputs = AttentionInputs(query, key, value, alpha, padding, None, causal, need_weights=step)
    with torch.set_grad_enabled(not step):
        return [each for each in compute(inputs) if each is not None]
