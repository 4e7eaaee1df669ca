"""Log-probabilities of mixtures: each row mixes a few softmax distributions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..entmax import has_native
from ..entmax.native import INTEGER, POINTER, NativeKernels, addresses
from ..entmax.operators import define_operator, once

ONCE = "log_mixture cannot be differentiated twice"

LEAST = {torch.float32: 1e-37, torch.float64: 1e-300}
_PROBLEM = [POINTER] * 3 + [INTEGER] * 2
kernels = NativeKernels(
    Path(__file__).with_name("mixture_cpu.cpp"),
    mixture_forward=(None, _PROBLEM + [POINTER] * 3),
    mixture_backward=(None, _PROBLEM + [POINTER] * 5),
)


def log_mixture(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> Tensor:
    """log Σ_n π_n softmax(z_n) over the pairs n of each row.

    Args:
        logits: z (N, V), of any floating dtype; half precision is computed in float32.
        weights: π (N,), positive, on the device of the logits.
        row: (N,), the row that each pair belongs to, from 0 to R − 1 in ascending order; on the same device.
        rows: their number, R.

    Returns:
        (R, V), float64 for float64 logits, else float32. A probability below 1e-37 (float64: 1e-300) is
        raised to it, a constant without a gradient. A row with a NaN, or with logits without a finite
        maximum, is NaN. Once differentiable in logits and weights.

    Raises:
        ValueError: shapes or devices do not fit; on a CPU also if ``row`` does not ascend in its range, or a
            weight is not positive.
    """
    if logits.dtype != torch.float64:
        logits = logits.float()
    row = row.long()  # torch indexes with no narrower integers than int32
    return log_mixture_operator(logits, weights, row, rows)[0]


def check_pairs(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> None:
    """Raise ValueError unless each of the N logits has a weight and a row.

    The kernel trusts these sizes: it would read and write beyond the ends of shorter tensors. The gradient of
    a weight that is 0 would be 0 / 0.
    """
    shape = logits.shape[:1]
    if logits.dim() != 2 or weights.shape != shape or row.shape != shape:
        shapes = f"{list(logits.shape)}, {list(weights.shape)} and {list(row.shape)}"
        raise ValueError(f"logits, weights and row must be (N, V), (N,) and (N,), not {shapes}")
    if weights.device != logits.device or row.device != logits.device:
        raise ValueError("logits, weights and row must be on one device")
    if row.is_cuda:  # looking at them would synchronise with the device
        return
    if bool(((row < 0) | (row >= rows)).any()) or bool((row[1:] < row[:-1]).any()):
        raise ValueError(f"row must ascend from 0 to {rows - 1}, so that the pairs of a row are together")
    weights = weights.to(logits.dtype)  # in which a tiny one vanishes
    if bool((weights <= 0).any()):
        raise ValueError(f"weights must be positive, not {weights.min()}; leave out pairs of weight 0")


def weighted_softmax(logits: Tensor, weights: Tensor) -> Tensor:
    """π_n softmax(z_n), (N, V)."""
    return torch.softmax(logits, 1).mul_(weights.to(logits.dtype).unsqueeze(1))


def mixture_of(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> Tensor:
    """The sum of each row's pairs (R, V), at least 1e-37 (float64: 1e-300)."""
    weighted = weighted_softmax(logits, weights)
    total = torch.zeros(rows, logits.size(1), dtype=logits.dtype, device=logits.device)
    return total.index_add_(0, row, weighted).clamp_min_(LEAST[total.dtype])


# ---------------------------------------------------------------------------------------- operators


def suits(logits: Tensor) -> bool:
    """Whether the native kernel is available for these logits."""
    on_cpu = logits.device.type == "cpu" and logits.size(1) > 0
    return on_cpu and has_native("cpu") and kernels.available()


def run_kernel(name: str, logits: Tensor, weights: Tensor, row: Tensor, *tensors: Tensor) -> None:
    """Run ``mixture_forward`` or ``mixture_backward``.

    Args:
        tensors: numbers per pair and mixture; then, forward, the log-probabilities, or, backward, the
            gradients of log-probabilities, logits and weights. Forward writes all, backward the last two.
    """
    rows = len(tensors[1])
    first = torch.searchsorted(row.contiguous(), torch.arange(rows + 1))  # first pair of each row, and N
    problem = [tensor.contiguous() for tensor in (logits, weights.to(logits.dtype), first)]
    contiguous = [tensor.contiguous() for tensor in tensors]
    sizes = rows, logits.size(1)
    kernels[name, logits.dtype](*addresses(*problem), *sizes, *addresses(*contiguous))


def new_results(logits: Tensor, rows: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the forward writes: log-probabilities and mixture (R, V), and two numbers per pair (N, 2)."""
    log_p = logits.new_empty(rows, size)
    return log_p, torch.empty_like(log_p), logits.new_empty(len(logits), 2)


def _forward(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The logarithm, the mixture (R, V), and two numbers of each pair, which plain torch leaves 0."""
    check_pairs(logits, weights, row, rows)
    if not suits(logits):
        mixture = mixture_of(logits, weights, row, rows)
        return mixture.log(), mixture, logits.new_zeros(len(logits), 2)
    log_p, mixture, pairs = new_results(logits, rows, logits.size(1))
    run_kernel("mixture_forward", logits, weights, row, pairs, mixture, log_p)
    return log_p, mixture, pairs


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _backward(
    logits: Tensor, weights: Tensor, row: Tensor, mixture: Tensor, pairs: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    if suits(logits):
        grads = logits.new_empty(logits.shape), logits.new_empty(weights.shape)
        run_kernel("mixture_backward", logits, weights, row, pairs, mixture, grad, *grads)
        return grads[0], grads[1].to(weights.dtype)
    # With q_n = π_n softmax(z_n), mixture m and c_n = q_n grad / m, the gradient of π_n is Σ_v c_nv / π_n,
    # and that of z_n is c_n − q_n Σ_v c_nv / π_n; in few passes over (N, V), which are most of the cost.
    weighted = weighted_softmax(logits, weights)
    ratios = torch.where(mixture <= LEAST[grad.dtype], 0.0, 1 / mixture)
    grad_logits = ratios.index_select(0, row).mul_(weighted).mul_(grad.index_select(0, row))
    grad_weights = grad_logits.sum(1) / weights.to(grad.dtype)
    grad_logits.addcmul_(weighted, grad_weights.unsqueeze(1), value=-1)
    return grad_logits.contiguous(), grad_weights.to(weights.dtype)


log_mixture_backward = define_operator(
    "log_mixture_backward(Tensor logits, Tensor weights, Tensor row, Tensor mixture, Tensor pairs, "
    "Tensor grad) -> (Tensor, Tensor)",
    _backward,
    lambda logits, weights, *_: (logits.new_empty(logits.shape), weights.new_empty(weights.shape)),
    once(ONCE),
)
log_mixture_operator = define_operator(
    "log_mixture(Tensor logits, Tensor weights, Tensor row, SymInt rows) -> (Tensor, Tensor, Tensor)",
    _forward,
    lambda logits, weights, row, rows: new_results(logits, rows, logits.size(1)),
    (_setup_context, lambda ctx, grad, *_: (*log_mixture_backward(*ctx.saved_tensors, grad), None, None)),
)
