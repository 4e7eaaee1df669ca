"""The backend for a GPU: Triton kernels, whose modules are imported when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from ...entmax import has_native, self_check
from ...entmax.operators import constant_in_graphs
from ..dense import dense_attention
from ..fused import FusedKernel, Gradients, Saved, empty_output, in_heads, is_learning
from ..inputs import AttentionInputs, KernelInputs

# Up to here the kernels are faster than dense attention. On an H200 they take 0.6 of its time at 32 keys and
# 1.9 times its time at 128, but a third in a decoding step; in 16 bits they are faster at any length.
MOST_KEYS_IN_FLOAT32 = 64


@constant_in_graphs
def unavailable() -> str | None:
    """Why there are no kernels; None if there are."""
    if torch.version.hip is None and has_native("cuda"):
        return None
    return "fused kernels for cuda need an NVIDIA GPU, triton, and ENTMAX_BACKEND not to be reference"


class TritonAttention(FusedKernel):
    """Computes in float32 and saves λ, one float32 by row, and for long rows which tiles have weights.

    ``auto`` uses it only if it passes its self-check. An α below 1 gives NaN, because a check of the values
    of α would synchronise with the device.
    """

    device = "cuda"
    unavailable = staticmethod(unavailable)
    operator, seeds, parts_dtype = "attention_triton", 2**31 - 1, torch.float32
    dtypes = (torch.float16, torch.bfloat16, torch.float32)

    def unsupported(self, inputs: AttentionInputs) -> str | None:
        """See the base class."""
        query, key, value, _, _, attn_mask, _, dropout, need_weights = inputs
        reason = super().unsupported(inputs)
        if reason is not None:
            return reason
        kernels = kernel_module()
        if query.size(3) > kernels.MAX_HEAD_DIM:
            return f"head dimension {query.size(3)} exceeds {kernels.MAX_HEAD_DIM}"
        if attn_mask is not None:
            return "on a GPU it supports no attn_mask"
        if dropout >= 1:
            return "dropout leaves no weights"
        tensors = [tensor for tensor in inputs[:4] if isinstance(tensor, Tensor)]
        if need_weights and (is_learning(*tensors) or not kernels.is_step(query, key, dropout)):
            most = kernels.STEP_KEYS
            return f"on a GPU it returns attention weights only in decoding steps of at most {most} keys"
        batch, heads, _, head_dim = query.shape
        rows = kernels.RESIDENT
        span = rows * max(batch * heads * head_dim, *(tensor.stride(2) for tensor in (query, key, value)))
        if span >= 2**31:
            return f"a tile of {rows} rows spans {span} elements; offsets within a tile have 32 bits"
        return None

    def is_preferred(self, inputs: AttentionInputs) -> bool:
        """See the base class."""
        query, keys = inputs.query, inputs.key.size(-2)
        step = query.size(-2) == 1 and not torch.is_grad_enabled()
        if query.dtype == torch.float32 and keys > MOST_KEYS_IN_FLOAT32 and not step:
            return False
        supported = super().is_preferred(inputs)
        return supported and passes_check(query.device, query.dtype, int(query.size(-1)))

    def forward(
        self, inputs: KernelInputs, need_weights: bool, save: bool, fixed_sizes: bool = False
    ) -> tuple[Tensor, Tensor | None, Saved]:
        """See the base class."""
        kernels, output = kernel_module(), empty_output(inputs.query)
        if not save and kernels.is_step(inputs.query, inputs.key, inputs.dropout):
            return output, kernels.step(inputs, in_heads(output), need_weights), ()
        lam = self.saved_like(inputs)
        flags = kernels.call(inputs).forward(inputs, in_heads(output), lam)
        return output, None, (lam,) if fixed_sizes else (lam, flags)

    def backward(
        self,
        inputs: KernelInputs,
        saved: Saved,
        grad: Tensor,
        grad_weights: Tensor | None,
        need_alpha: bool,
    ) -> Gradients:
        """See the base class."""
        query, key, value = [torch.empty_like(tensor) for tensor in inputs[:3]]
        call = kernel_module().call(inputs)
        parts = call.backward(inputs, grad, (query, key, value), saved, need_alpha)
        return query, key, value, parts

    def saved_like(self, inputs: KernelInputs) -> Tensor:
        """λ; see the base class."""
        return inputs.query.new_empty(inputs.query.shape[:3], dtype=torch.float32)


KERNEL = TritonAttention()


def kernel_module() -> ModuleType:
    """The module of the kernels, which needs Triton."""
    from . import kernels

    return kernels


@constant_in_graphs
def passes_check(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the kernels agree with plain torch; False if unchecked while a CUDA graph is captured."""
    highest = dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    kind = device, dtype, head_dim, "highest" if highest else "high"
    return bool(self_check.passes("fused attention", _problems, *kind))


def _problems(
    generator: torch.Generator, dtype: torch.dtype, head_dim: int, precision: str
) -> self_check.Problems:
    """Problems that together run every kernel; no length is a multiple of a tile."""
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
        case = padding, queries == keys, queries == 1
        kernel, plain = (partial(_outputs, compute, *case) for compute in (KERNEL.compute, dense_attention))
        yield kernel, plain, [*drawn, alpha]


def _outputs(compute: Callable, padding: Tensor, causal: bool, step: bool, *tensors: Tensor) -> list[Tensor]:
    """The output, and the weights of a decoding step."""
    query, key, value, alpha = tensors
    padding = padding.to(query.device)
    inputs = AttentionInputs(query, key, value, alpha, padding, None, causal, need_weights=step)
    with torch.set_grad_enabled(not step):
        return [result for result in compute(inputs) if result is not None]
