"""The native CPU kernel of the α-entmax loss, ``loss_cpu.cpp``, with the interface of ``loss_reference``."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, Optional

import torch
from torch import Tensor

from .build import INTEGER, POINTER, load_kernel
from .loss_reference import new_results

_PROBLEM = [POINTER] * 2 + [INTEGER] * 2 + [ctypes.c_double] * 2 + [INTEGER]


@functools.cache
def kernel() -> Optional[dict]:
    """The compiled functions by (name, dtype); None if they cannot be built."""
    source = Path(__file__).with_suffix(".cpp")
    takes = _PROBLEM + [POINTER] * 3
    return load_kernel(source, loss_forward=(None, takes), loss_backward=(None, takes))


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


def _run(name: str, scores: Tensor, target: Tensor, *arguments: Any) -> None:
    found = kernel()
    assert found is not None, "this implementation was selected without a kernel"
    alpha, label_smoothing, ignore_index, *tensors = arguments
    problem = (scores.data_ptr(), target.data_ptr(), *scores.shape, alpha - 1, label_smoothing, ignore_index)
    found[name, scores.dtype](*problem, *(tensor.data_ptr() for tensor in tensors))
