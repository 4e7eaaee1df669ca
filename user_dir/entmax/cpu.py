"""The native CPU kernels, with the interface of :mod:`.reference`."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from .checks import check_range
from .native import INTEGER, POINTER, NativeKernels, addresses
from .reference import LossSettings, new_loss_results, working_dtype
from .rows import alpha_per_row, as_rows, from_rows, gradient_of_alpha

_FORWARD = [POINTER] * 2 + [INTEGER] * 2 + [POINTER] + [INTEGER] * 2
_BACKWARD = [POINTER] * 4 + [INTEGER] * 2 + [POINTER] + [INTEGER] * 2
_OUT_OF_RANGE, _SOME_AT_ONE = -1, 1
_LOSS = [POINTER] * 2 + [INTEGER] * 2 + [ctypes.c_double] * 2 + [INTEGER] + [POINTER] * 3

_FOLDER = Path(__file__).parent
kernels = NativeKernels(_FOLDER / "cpu.cpp", forward=(INTEGER, _FORWARD), backward=(None, _BACKWARD))
loss_kernels = NativeKernels(
    _FOLDER / "loss_cpu.cpp", loss_forward=(None, _LOSS), loss_backward=(None, _LOSS)
)


def entmax_forward(scores: Tensor, alpha: Tensor, dim: int = -1) -> Tensor:
    """As :func:`reference.entmax_forward`. Raises ValueError if an α is below 1, infinite or NaN."""
    if scores.numel() == 0:
        check_range(alpha)
        return torch.zeros_like(scores)
    dtype = working_dtype(scores.dtype)
    rows = as_rows(scores.to(dtype), dim)
    weights = torch.empty_like(rows)
    vector, repeat = _vector(alpha, scores, dim)
    problem = (*addresses(rows, weights), *rows.shape, vector.data_ptr(), vector.numel(), repeat)
    status = kernels["forward", dtype](*problem)
    if status == _OUT_OF_RANGE:
        check_range(alpha)
    weights = from_rows(weights, scores, dim)
    if status == _SOME_AT_ONE:  # bitwise equal to torch.softmax
        weights = torch.where(alpha == 1, torch.softmax(scores.to(dtype), dim), weights)
        weights = weights.masked_fill(scores.isneginf().all(dim, keepdim=True), 0.0)
    return weights.to(scores.dtype)


def entmax_backward(
    weights: Tensor, alpha: Tensor, grad: Tensor, dim: int = -1, need_alpha: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the scores and of α from the weights; see :func:`reference.entmax_backward`."""
    if weights.numel() == 0:
        return torch.zeros_like(weights), torch.zeros_like(alpha) if need_alpha else None
    dtype = working_dtype(weights.dtype)
    rows, grad_rows = as_rows(weights.to(dtype), dim), as_rows(grad.to(dtype), dim)
    grad_scores = torch.empty_like(rows)
    per_row = torch.empty(rows.size(0), dtype=torch.float64) if need_alpha else None
    vector, repeat = _vector(alpha, weights, dim)
    problem = (*addresses(rows, grad_rows, grad_scores, per_row), *rows.shape)
    kernels["backward", dtype](*problem, vector.data_ptr(), vector.numel(), repeat)
    grad_alpha = None if per_row is None else gradient_of_alpha(per_row, alpha, weights, dim)
    return from_rows(grad_scores, weights, dim).to(weights.dtype), grad_alpha


def _vector(alpha: Tensor, scores: Tensor, dim: int) -> tuple[Tensor, int]:
    """α and repeat of :func:`alpha_per_row`, α in float64 to keep its digits near 1."""
    vector, repeat = alpha_per_row(alpha, scores, dim)
    return vector.to(torch.float64), repeat


def loss_forward(scores: Tensor, target: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, sizes of the support, and max z, λ and Σ p for the backward; see ``reference``."""
    results = new_loss_results(scores, target)
    _run_loss("loss_forward", scores, target, settings, *results)
    return results


def loss_backward(
    scores: Tensor, target: Tensor, settings: LossSettings, solutions: Tensor, grad: Tensor
) -> Tensor:
    """The gradient of the scores; see ``reference``."""
    grad_scores = torch.empty_like(scores)
    _run_loss("loss_backward", scores, target, settings, solutions, grad.contiguous(), grad_scores)
    return grad_scores


def _run_loss(name: str, scores: Tensor, target: Tensor, settings: LossSettings, *tensors: Tensor) -> None:
    alpha, label_smoothing, ignore_index = settings
    problem = (*addresses(scores, target), *scores.shape, alpha - 1, label_smoothing, ignore_index)
    loss_kernels[name, scores.dtype](*problem, *addresses(*tensors))
