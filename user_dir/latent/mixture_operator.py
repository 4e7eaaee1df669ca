"""The log-mixture as operators of ``torch.library``: forward and gradients, by the kernel if there is one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..entmax.merged_vmap import merged_vmap
from ..entmax.operators import define_operator, once
from . import mixture_cpu
from .mixture_pairs import ONCE, check_pairs, gradients_of_pairs, sum_of_pairs, weighted_softmax


def _forward(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The logarithm, the mixture (R, V), and two numbers of each pair, which plain torch leaves 0."""
    check_pairs(logits, weights, row, rows)
    if mixture_cpu.suits(logits):
        return mixture_cpu.log_mixture(logits, weights, row, rows)
    log_p, mixture, pairs = mixture_cpu.new_results(logits, rows, logits.size(1))
    total = sum_of_pairs(weighted_softmax(logits, weights), row, rows)
    return log_p.copy_(total.log()), mixture.copy_(total), pairs.zero_()


def _fake_forward(logits: Tensor, weights: Tensor, row: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    return mixture_cpu.new_results(logits, rows, logits.size(1))


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _gradients(ctx: Any, grad: Tensor, *_: Any) -> tuple:
    return *backward_operator(*ctx.saved_tensors, grad), None, None


def _backward(
    logits: Tensor, weights: Tensor, row: Tensor, mixture: Tensor, pairs: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    if mixture_cpu.suits(logits):
        return mixture_cpu.gradients(logits, weights, row, mixture, pairs, grad)
    found = gradients_of_pairs(weighted_softmax(logits, weights), mixture, weights, row, grad)
    return found[0].contiguous(), found[1]


def _fake_backward(logits: Tensor, weights: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    return logits.new_empty(logits.shape), weights.new_empty(weights.shape)


backward_operator = define_operator(
    "log_mixture_backward(Tensor logits, Tensor weights, Tensor row, Tensor mixture, Tensor pairs, "
    "Tensor grad) -> (Tensor, Tensor)",
    _backward,
    _fake_backward,
    once(ONCE),
    merged_vmap(()),
)
log_mixture = define_operator(
    "log_mixture(Tensor logits, Tensor weights, Tensor row, SymInt rows) -> (Tensor, Tensor, Tensor)",
    _forward,
    _fake_forward,
    (_setup_context, _gradients),
    merged_vmap(()),
)
