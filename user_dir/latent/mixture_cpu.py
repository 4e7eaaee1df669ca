"""The native CPU kernel of the log-mixture, ``mixture_cpu.cpp``."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..cpp.build import INTEGER, POINTER, NativeKernels, addresses
from ..entmax import has_native
from .mixture_pairs import first_pairs

_PROBLEM = [POINTER] * 3 + [INTEGER] * 2


kernels = NativeKernels(
    Path(__file__).with_suffix(".cpp"),
    mixture_forward=(None, _PROBLEM + [POINTER] * 3),
    mixture_backward=(None, _PROBLEM + [POINTER] * 5),
)


def suits(logits: Tensor) -> bool:
    """Whether the kernel is there for these logits."""
    on_cpu = logits.device.type == "cpu" and logits.size(1) > 0
    return on_cpu and has_native("cpu") and kernels.available()


def new_results(logits: Tensor, rows: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`forward` writes: log-probabilities and mixture (R, V), and two numbers per pair (N, 2)."""
    log_p = logits.new_empty(rows, size)
    return log_p, torch.empty_like(log_p), logits.new_empty(len(logits), 2)


def forward(
    logits: Tensor, weights: Tensor, first: Tensor, log_p: Tensor, mixture: Tensor, pairs: Tensor
) -> None:
    """Write log Σ_n π_n softmax(z_n) of each row, and what the backward needs; all tensors are contiguous.

    Args:
        logits: z (N, V), in the order of their rows.
        weights: π (N,).
        first: (R + 1,), the first pair of each row, and N.
        log_p, mixture, pairs: from :func:`new_results`.
    """
    _run("mixture_forward", logits, weights, first, pairs, mixture, log_p)


def backward(
    logits: Tensor,
    weights: Tensor,
    first: Tensor,
    mixture: Tensor,
    pairs: Tensor,
    grad: Tensor,
    grad_logits: Tensor,
    grad_weights: Tensor,
) -> None:
    """Write the gradients of logits and weights, given what :func:`forward` wrote."""
    _run("mixture_backward", logits, weights, first, pairs, mixture, grad, grad_logits, grad_weights)


def log_mixture(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`forward`, from tensors of any strides and the row of each pair; returns what that writes."""
    results = new_results(logits, rows, logits.size(1))
    same = weights.to(logits.dtype).contiguous()
    forward(logits.contiguous(), same, first_pairs(row, rows), *results)
    return results


def gradients(
    logits: Tensor, weights: Tensor, row: Tensor, mixture: Tensor, pairs: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Of logits and weights, given what :func:`log_mixture` returned."""
    logits, same = logits.contiguous(), weights.to(logits.dtype).contiguous()
    grad_logits, grad_weights = torch.empty_like(logits), torch.empty_like(same)
    given = (logits, same, first_pairs(row, len(mixture)), mixture.contiguous(), pairs.contiguous())
    backward(*given, grad.contiguous(), grad_logits, grad_weights)
    return grad_logits, grad_weights.to(weights.dtype)


def _run(name: str, logits: Tensor, weights: Tensor, first: Tensor, *tensors: Tensor) -> None:
    assert all(each.is_contiguous() for each in (logits, weights, first, *tensors)), (
        "the kernel ignores strides"
    )
    problem = (*addresses(logits, weights, first), len(first) - 1, logits.size(1))
    kernels[name, logits.dtype](*problem, *addresses(*tensors))
