"""Attention by the kernel for the CPU as operators of ``torch.library``: forward, and all gradients.

Shapes of what the forward saves must not depend on values, so it saves no weights: the backward computes
them again.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ..entmax.merged_vmap import merged_vmap
from ..entmax.operators import define_operator, once
from ..entmax.reference import working_dtype
from . import cpu_kernel
from .head_layouts import ONCE, dense_rows, empty_output, gradient_of_alpha, in_heads

_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, Tensor alpha, Tensor? key_padding_mask, Tensor? attn_mask, "
    "bool causal, float dropout, Tensor? seed"
)
_SEED = 8


def _forward(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Output (B, H, T, D), weights, and the kernel's solutions, sentence by sentence."""
    query, arguments = given[0], [*given, True]
    (output, weights), (_, solutions, *_) = cpu_kernel.forward(*arguments)
    weights = _nothing(query) if weights is None else weights
    return in_heads(output), weights, _nothing(query) if solutions is None else solutions.flatten(1)


def _fake_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    causal: bool,
    dropout: float,
    seed: Optional[Tensor],
    need_weights: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    weights, solutions = _nothing(query), _nothing(query)
    if need_weights:
        weights = query.new_empty(batch, heads, queries, key.size(2))
    if save:
        lanes = cpu_kernel.lanes_of(query)
        size = heads * ((queries + lanes - 1) // lanes) * 3 * lanes
        solutions = query.new_empty(batch, size, dtype=working_dtype(query.dtype))
    return in_heads(empty_output(query)), weights, solutions


def _nothing(query: Tensor) -> Tensor:
    """In place of a tensor that is not there: for torch, a result is always one."""
    return query.new_empty(query.size(0), 0)


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.dropout, seed, ctx.need_weights, ctx.save = inputs
    ctx.save_for_backward(*tensors, seed, output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Optional[Tensor], grad_weights: Optional[Tensor], _: Any) -> tuple:
    *tensors, seed, solutions = ctx.saved_tensors
    if not ctx.save:
        raise RuntimeError("fused attention was called under torch.no_grad, but its gradient is asked for")
    grad = torch.zeros_like(tensors[0]) if grad is None else grad
    grad_weights = grad_weights if ctx.need_weights else None
    given = (*tensors, ctx.causal, ctx.dropout, seed, solutions, grad, grad_weights)
    *grads, per_head = _backward_operator(*given, ctx.needs_input_grad[3])
    grad_alpha = gradient_of_alpha(per_head, tensors[3]) if ctx.needs_input_grad[3] else None
    return *grads, grad_alpha, *[None] * 7


def _backward(*given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, value, *others, solutions, grad, grad_weights, need_alpha = given
    query, key, value = dense_rows(query), dense_rows(key), dense_rows(value)
    saved = (None, solutions.contiguous(), None, None, None)
    arguments = [query, key, value, *others, saved, grad, grad_weights, need_alpha]
    grads, per_head = cpu_kernel.backward(*arguments)
    return *grads, _nothing(query) if per_head is None else per_head


def _fake_backward(
    query: Tensor, key: Tensor, value: Tensor, *given: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grads = [torch.empty_like(dense_rows(tensor)) for tensor in (query, key, value)]
    need_alpha = given[-1]
    per_head = query.new_empty(query.shape[:2], dtype=torch.float64) if need_alpha else _nothing(query)
    return grads[0], grads[1], grads[2], per_head


_backward_operator = define_operator(
    f"attention_cpu_backward({_ARGUMENTS}, Tensor solutions, Tensor grad, Tensor? grad_weights, "
    "bool need_alpha) -> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
    once(ONCE),
    merged_vmap((0, 1, 2, 4, 9, 10, 11), seed=_SEED),
)
attention = define_operator(
    f"attention_cpu({_ARGUMENTS}, bool need_weights, bool save) -> (Tensor, Tensor, Tensor)",
    _forward,
    _fake_forward,
    (_setup_context, _gradients),
    merged_vmap((0, 1, 2, 4), seed=_SEED),
)
