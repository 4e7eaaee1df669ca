"""The logarithm of a mixture of softmax distributions, of which each row has a few."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.once import once_differentiable
from . import mixture_cpu

ONCE = "log_mixture cannot be differentiated twice"


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
            they are on another device; on a CPU also if ``row`` does not ascend or leaves its range.
    """
    check_pairs(logits, weights, row, rows)
    if logits.dtype != torch.float64:
        logits = logits.float()
    if torch.jit.is_scripting():  # TorchScript has no autograd functions
        return torch.log(_mixture(_weighted(logits, weights), row, rows))
    return _log_mixture(logits, weights, row, rows)


@torch.jit.unused
def _log_mixture(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> Tensor:
    on_cpu = logits.device.type == "cpu" and logits.size(1) > 0
    if on_cpu and has_native("cpu") and mixture_cpu.kernel() is not None:
        return _NativeLogMixture.apply(logits, weights, first_pairs(row, rows))
    return _LogMixture.apply(logits, weights, row, rows)


def check_pairs(values: Tensor, weights: Tensor, row: Tensor, rows: int) -> None:
    """Raise ValueError unless a weight and a row belong to each of N vectors; TorchScript can compile it.

    The kernel trusts these sizes: it would read and write beyond the ends of shorter tensors.

    Args:
        values: (N, …), logits or the features they are made of.
        weights, row, rows: see :func:`log_mixture`.
    """
    shape = values.shape[:1]
    if values.dim() != 2 or weights.shape != shape or row.shape != shape:
        # as lists, which TorchScript can print too
        raise ValueError(
            f"values, weights and row must be (N, …), (N,) and (N,), not {list(values.shape)}, "
            f"{list(weights.shape)} and {list(row.shape)}"
        )
    if weights.device != values.device or row.device != values.device:
        raise ValueError(
            f"values, weights and row must be on one device, not on {values.device}, {weights.device} and "
            f"{row.device}"
        )
    if row.is_cuda:  # looking at them would synchronise with the device
        return
    wrong = (row < 0) | (row >= rows)
    if bool(wrong.any()) or bool((row[1:] < row[:-1]).any()):
        raise ValueError(f"row must ascend from 0 to {rows - 1}, so that the pairs of a row are together")


def first_pairs(row: Tensor, rows: int) -> Tensor:
    """The first pair of each row, and N: (R + 1,)."""
    return torch.searchsorted(row.contiguous(), torch.arange(rows + 1, dtype=row.dtype, device=row.device))


def _weighted(logits: Tensor, weights: Tensor) -> Tensor:
    """π_n softmax(z_n), (N, V)."""
    return torch.softmax(logits, 1).mul_(weights.to(logits.dtype).unsqueeze(1))


def _mixture(weighted: Tensor, row: Tensor, rows: int) -> Tensor:
    """The sum of each row's pairs (R, V), at least the smallest normal number."""
    total = torch.zeros(rows, weighted.size(1), dtype=weighted.dtype, device=weighted.device)
    return total.index_add_(0, row, weighted).clamp_min_(1e-37 if weighted.dtype == torch.float32 else 1e-300)


class _LogMixture(torch.autograd.Function):
    """In plain torch, with a backward of few passes over (N, V), which is most of the cost.

    With g the gradient of the result, q_n = π_n softmax(z_n), m the mixture and c_n = q_n g/m: the gradient
    of z_n is c_n − q_n Σ_v c_nv / π_n, and that of π_n is Σ_v c_nv / π_n.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> Tensor:
        weighted = _weighted(logits, weights)
        total = _mixture(weighted, row, rows)
        ctx.save_for_backward(weighted, total, weights, row)
        return total.log()

    @staticmethod
    @once_differentiable(ONCE)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weighted, total, weights, row = ctx.saved_tensors
        grad_logits = (grad / total).index_select(0, row).mul_(weighted)
        grad_weights = grad_logits.sum(1) / weights.to(grad.dtype)
        grad_logits.addcmul_(weighted, grad_weights.unsqueeze(1), value=-1)
        return grad_logits, grad_weights.to(weights.dtype), None, None


class _NativeLogMixture(torch.autograd.Function):
    """The same by the kernel for the CPU, which keeps no tensor of the size of the logits but the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weights: Tensor, first: Tensor) -> Tensor:
        logits, same = logits.contiguous(), weights.to(logits.dtype).contiguous()
        log_p, mixture, pairs = mixture_cpu.new_results(logits, len(first) - 1, logits.size(1))
        mixture_cpu.forward(logits, same, first, log_p, mixture, pairs)
        ctx.save_for_backward(logits, same, first, mixture, pairs)
        ctx.dtype = weights.dtype
        return log_p

    @staticmethod
    @once_differentiable(ONCE)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        logits, weights, first, mixture, pairs = ctx.saved_tensors
        grad_logits, grad_weights = torch.empty_like(logits), torch.empty_like(weights)
        given = logits, weights, first, mixture, pairs, grad.contiguous()
        mixture_cpu.backward(*given, grad_logits, grad_weights)
        return grad_logits, grad_weights.to(ctx.dtype), None
