"""The logarithm of a mixture of softmax distributions, of which each row has a few."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..entmax.once import once_differentiable
from ..entmax.operators import is_eager
from . import mixture_cpu, mixture_operator
from .mixture_pairs import ONCE, check_pairs, gradients_of_pairs, sum_of_pairs, weighted_softmax


def log_mixture(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> Tensor:
    """log Σ_n π_n softmax(z_n) over the pairs n of each row.

    Args:
        logits: z (N, V), of any floating dtype; half precision is computed in float32.
        weights: π (N,), positive, on the device of the logits.
        row: (N,), the row that each pair belongs to, from 0 to R − 1 in ascending order; on the same device.
        rows: their number, R.

    Returns:
        (R, V), float64 for float64 logits, else float32. A probability below the smallest normal number is
        taken for that number. A row with a NaN, or with logits without a finite maximum, is NaN. Once
        differentiable in logits and weights.

    Raises:
        ValueError: the logits are not (N, V), there is not one weight and one row for each of the N pairs, or
            they are on another device; on a CPU also if ``row`` does not ascend or leaves its range, or a
            weight is not positive.
    """
    check_pairs(logits, weights, row, rows)
    if logits.dtype != torch.float64:
        logits = logits.float()
    row = row.long()  # torch indexes with no narrower integers than int32
    if torch.jit.is_scripting():  # TorchScript has no autograd functions
        return torch.log(sum_of_pairs(weighted_softmax(logits, weights), row, rows))
    return _log_mixture(logits, weights, row, rows)


@torch.jit.unused
def _log_mixture(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> Tensor:
    if not is_eager(logits, weights, row):
        return mixture_operator.log_mixture(logits, weights, row, rows)[0]
    if mixture_cpu.suits(logits):
        return _NativeLogMixture.apply(logits, weights, row, rows)
    return _LogMixture.apply(logits, weights, row, rows, logits[:0].clone())


class _LogMixture(torch.autograd.Function):
    """In plain torch, with the backward of :func:`.mixture_pairs.gradients_of_pairs`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weights: Tensor, row: Tensor, rows: int, nothing: Tensor) -> Tensor:
        weighted = weighted_softmax(logits, weights)
        total = sum_of_pairs(weighted, row, rows)
        # ``nothing`` is made of the logits, and leads to them without keeping their memory
        ctx.save_for_backward(weighted, total, weights, row, nothing)
        return total.log()

    @staticmethod
    @once_differentiable(ONCE)
    def backward(ctx: Any, saved: tuple, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        weighted, total, weights, row, _ = saved
        return *gradients_of_pairs(weighted, total, weights, row, grad), None, None, None


class _NativeLogMixture(torch.autograd.Function):
    """The same by the kernel for the CPU, which keeps no tensor of the size of the logits but the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> Tensor:
        log_p, *saved = mixture_cpu.log_mixture(logits, weights, row, rows)
        ctx.save_for_backward(logits, weights, row, *saved)
        return log_p

    @staticmethod
    @once_differentiable(ONCE)
    def backward(ctx: Any, saved: tuple, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        given = (*saved, grad)
        if not is_eager(grad):  # several gradients at once, as for a vectorised Jacobian
            return *mixture_operator.backward_operator(*given), None, None
        return *mixture_cpu.gradients(*given), None, None
