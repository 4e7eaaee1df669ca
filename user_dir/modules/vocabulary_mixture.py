"""Mixtures of softmax distributions over a vocabulary, from features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entmax import has_native
from ..entmax.once import once_differentiable
from ..latent import mixture_cpu
from ..latent.mixture import log_mixture
from ..latent.mixture_pairs import check_pairs, first_pairs
from .linear import linear, multiply, suits_onednn

BLOCK = 2**22  # logits in one tensor


def vocabulary_mixture(
    features: Tensor, vocabulary: Tensor, weights: Tensor, row: Tensor, rows: int
) -> Tensor:
    """log Σ_n π_n softmax(W f_n) over the pairs n of each row: ``log_mixture(linear(f, W), …)``.

    On a CPU, the logits (N, V) are kept in blocks, and their gradient exists one block at a time: half the
    memory, in tensors of nearly equal size. Large tensors of ever different sizes would leave gaps in memory
    that is kept between updates, as ``scripts/train.py`` asks for.

    Args:
        features: f (N, C).
        vocabulary: W (V, C).
        weights, row, rows: see :func:`user_dir.latent.log_mixture`.

    Returns:
        (R, V); see there.

    Raises:
        ValueError: f is not (N, C), W is not (V, C), or what is said there.
    """
    if features.dim() != 2 or vocabulary.dim() != 2 or features.size(1) != vocabulary.size(1):
        raise ValueError(
            "features and vocabulary must be (N, C) and (V, C), not "
            f"{list(features.shape)} and {list(vocabulary.shape)}"
        )
    if torch.jit.is_scripting():
        return log_mixture(F.linear(features, vocabulary), weights, row, rows)
    return _vocabulary_mixture(features, vocabulary, weights, row, rows)


@torch.jit.unused
def _vocabulary_mixture(
    features: Tensor, vocabulary: Tensor, weights: Tensor, row: Tensor, rows: int
) -> Tensor:
    in_blocks = (
        features.device.type == "cpu"
        and features.dtype == vocabulary.dtype == weights.dtype
        and features.dtype in (torch.float32, torch.float64)
        and vocabulary.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and has_native("cpu")
        and mixture_cpu.kernels.available()
    )
    if not in_blocks:
        return log_mixture(linear(features, vocabulary, None), weights, row, rows)
    check_pairs(features, weights, row, rows)
    return _Blockwise.apply(features, vocabulary, weights.contiguous(), first_pairs(row, rows))


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, vocabulary: Tensor, weights: Tensor, first: Tensor) -> Tensor:
        log_p, mixture, pairs = mixture_cpu.new_results(features, len(first) - 1, len(vocabulary))
        kept = []
        for rows, some, offsets in _blocks(first, len(vocabulary)):
            logits = _product(features[some], vocabulary)
            mixture_cpu.forward(logits, weights[some], offsets, log_p[rows], mixture[rows], pairs[some])
            if any(ctx.needs_input_grad):
                kept.append(logits)
        ctx.save_for_backward(features, vocabulary, weights, first, mixture, pairs, *kept)
        return log_p

    @staticmethod
    @once_differentiable("vocabulary_mixture cannot be differentiated twice")
    def backward(ctx: Any, saved: tuple, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        features, vocabulary, weights, first, mixture, pairs, *kept = saved
        grad_features, grad_weights = torch.empty_like(features), torch.empty_like(weights)
        grad_vocabulary = torch.zeros_like(vocabulary)
        grad = grad.contiguous()
        for logits, (rows, some, offsets) in zip(kept, _blocks(first, len(vocabulary))):
            grad_logits = torch.empty_like(logits)
            given = logits, weights[some], offsets, mixture[rows], pairs[some], grad[rows]
            mixture_cpu.backward(*given, grad_logits, grad_weights[some])
            grad_features[some] = _product(grad_logits, vocabulary.t())
            grad_vocabulary += _product(features[some].t(), grad_logits.t()).t()
        return grad_features, grad_vocabulary, grad_weights, None


def _blocks(first: Tensor, size: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Rows, their pairs, and the first pair of each: at most ``BLOCK`` logits, or one row."""
    ends, row = first.tolist(), 0
    while row < len(ends) - 1:
        start = row
        while row < len(ends) - 1 and (row == start or (ends[row + 1] - ends[start]) * size <= BLOCK):
            row += 1
        yield slice(start, row), slice(ends[start], ends[row]), first[start : row + 1] - ends[start]


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """xWᵀ."""
    return multiply(x, weight, None) if suits_onednn(x, weight) else x @ weight.t()
