"""The native CPU kernel of the α-entmax loss, ``loss_cpu.cpp``, with the interface of ``loss_reference``."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..cpp.build import INTEGER, POINTER, NativeKernels, addresses
from .loss_reference import new_results

_TAKES = [POINTER] * 2 + [INTEGER] * 2 + [ctypes.c_double] * 2 + [INTEGER] + [POINTER] * 3


kernels = NativeKernels(
    Path(__file__).with_suffix(".cpp"), loss_forward=(None, _TAKES), loss_backward=(None, _TAKES)
)


def loss_forward(
    scores: Tensor, target: Tensor, alpha: float, label_smoothing: float, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, sizes of the support, and λ with Σ p for the backward; see ``loss_reference``."""
    results = new_results(scores, target)
    _run("loss_forward", scores, target, alpha, label_smoothing, ignore_index, *results)
    return results


def loss_backward(
    scores: Tensor,
    target: Tensor,
    alpha: float,
    label_smoothing: float,
    ignore_index: int,
    solutions: Tensor,
    grad: Tensor,
) -> Tensor:
    """The gradient of the scores; see ``loss_reference``."""
    grad_scores = torch.empty_like(scores)
    rest = (solutions, grad.contiguous(), grad_scores)
    _run("loss_backward", scores, target, alpha, label_smoothing, ignore_index, *rest)
    return grad_scores


def _run(name: str, scores: Tensor, target: Tensor, *given: Any) -> None:
    alpha, label_smoothing, ignore_index, *tensors = given
    problem = (*addresses(scores, target), *scores.shape, alpha - 1, label_smoothing, ignore_index)
    kernels[name, scores.dtype](*problem, *addresses(*tensors))
