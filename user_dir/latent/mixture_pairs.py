"""Pairs of a row and a softmax distribution: their sizes, their order, and their sum in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from ..entmax.operators import is_eager

ONCE = "log_mixture cannot be differentiated twice"


def check_pairs(values: Tensor, weights: Tensor, row: Tensor, rows: int) -> None:
    """Raise ValueError unless a weight and a row belong to each of N vectors; TorchScript can compile it.

    The kernel trusts these sizes: it would read and write beyond the ends of shorter tensors. The gradient of
    a weight that is 0 would be 0 / 0.

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
    if not torch.jit.is_scripting():  # noqa: SIM102  for TorchScript
        if not is_eager(row):  # the operator looks
            return
    row = row.long()  # narrow integers would wrap the number that they are compared with
    wrong = (row < 0) | (row >= rows)
    if bool(wrong.any()) or bool((row[1:] < row[:-1]).any()):
        raise ValueError(f"row must ascend from 0 to {rows - 1}, so that the pairs of a row are together")
    if bool((weights <= 0).any()):
        raise ValueError(f"weights must be positive, not {weights.min()}; leave out pairs of weight 0")


def first_pairs(row: Tensor, rows: int) -> Tensor:
    """The first pair of each row, and N: (R + 1,)."""
    return torch.searchsorted(row.long().contiguous(), torch.arange(rows + 1, device=row.device))


def weighted_softmax(logits: Tensor, weights: Tensor) -> Tensor:
    """π_n softmax(z_n), (N, V)."""
    return torch.softmax(logits, 1).mul_(weights.to(logits.dtype).unsqueeze(1))


def sum_of_pairs(weighted: Tensor, row: Tensor, rows: int) -> Tensor:
    """The sum of each row's pairs (R, V), at least the smallest normal number."""
    total = torch.zeros(rows, weighted.size(1), dtype=weighted.dtype, device=weighted.device)
    return normal(total.index_add_(0, row, weighted))


def normal(probabilities: Tensor) -> Tensor:
    """Raise probabilities to the smallest normal number at least, in place."""
    return probabilities.clamp_min_(1e-37 if probabilities.dtype == torch.float32 else 1e-300)


def gradients_of_pairs(
    weighted: Tensor, total: Tensor, weights: Tensor, row: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of logits and weights, in few passes over (N, V), which are most of the cost.

    With g the gradient of the result, q_n = π_n softmax(z_n), m the mixture and c_n = q_n g/m: the gradient
    of z_n is c_n − q_n Σ_v c_nv / π_n, and that of π_n is Σ_v c_nv / π_n.

    Args:
        weighted: q, (N, V).
        total: m, (R, V).
        weights: π, (N,).
        row: (N,).
        grad: g, (R, V).
    """
    grad_logits = (grad / total).index_select(0, row).mul_(weighted)
    grad_weights = grad_logits.sum(1) / weights.to(grad.dtype)
    grad_logits.addcmul_(weighted, grad_weights.unsqueeze(1), value=-1)
    return grad_logits, grad_weights.to(weights.dtype)
