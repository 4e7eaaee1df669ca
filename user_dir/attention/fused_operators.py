"""Attention by the Triton kernels as operators of ``torch.library``: forward, gradients, a decoding step."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ..entmax.merged_vmap import merged_vmap
from ..entmax.operators import define_operator, is_eager, number_beside, once
from . import fused
from .head_layouts import ONCE, dense_rows, empty_output, gradient_of_alpha, in_heads
from .inputs import AttentionInputs

_TENSORS = "Tensor query, Tensor key, Tensor value, Tensor alpha, Tensor? padding"
_ARGUMENTS = f"{_TENSORS}, bool causal, float dropout, Tensor? seed"
_SEED = 7


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    padding: Optional[Tensor],
    causal: bool,
    dropout: float,
    seed: Optional[Tensor],
) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, D), and λ (B, H, T)."""
    query, key, value = dense_rows(query), dense_rows(key), dense_rows(value)
    output, lam = _fake_forward(query)
    call = _call(query, key, alpha, causal, dropout, seed)
    call.forward(query, key, value, output, lam, alpha, _rows(padding))
    return output, lam


def _fake_forward(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return in_heads(empty_output(query)), query.new_empty(query.shape[:3], dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.dropout, seed = inputs
    ctx.save_for_backward(*tensors, seed, output[1])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Optional[Tensor], ...]:
    *tensors, seed, lam = ctx.saved_tensors
    need_alpha = ctx.needs_input_grad[3]
    *grads, per_head = _backward_operator(*tensors, ctx.causal, ctx.dropout, seed, lam, grad, need_alpha)
    return *grads, gradient_of_alpha(per_head, tensors[3]) if need_alpha else None, *[None] * 4


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alpha: Tensor,
    padding: Optional[Tensor],
    causal: bool,
    dropout: float,
    seed: Optional[Tensor],
    lam: Tensor,
    grad: Tensor,
    need_alpha: bool,
) -> tuple[Tensor, ...]:
    """Gradients of queries, keys and values, and that of α per sentence and head, (B, H)."""
    query, key, value = dense_rows(query), dense_rows(key), dense_rows(value)
    grads = [torch.empty_like(tensor) for tensor in (query, key, value)]
    call = _call(query, key, alpha, causal, dropout, seed)
    given: list = [query, key, value, dense_rows(grad), *grads, lam.contiguous(), alpha, _rows(padding)]
    parts = call.backward(*[*given, need_alpha])
    return *grads, _nothing(query) if parts is None else parts.sum(2)


def _fake_backward(query: Tensor, key: Tensor, value: Tensor, *given: Any) -> tuple[Tensor, ...]:
    grads = [torch.empty_like(dense_rows(tensor)) for tensor in (query, key, value)]
    need_alpha = given[-1]
    per_head = query.new_empty(query.shape[:2], dtype=torch.float32) if need_alpha else _nothing(query)
    return *grads, per_head


def _step(*given: Any) -> tuple[Tensor, Tensor]:
    query, key, value, alpha, padding, need_weights = given
    output, weights = fused.step(query, key, value, alpha, _rows(padding), need_weights)
    return output, _nothing(output) if weights is None else weights


def _fake_step(query: Tensor, key: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    need_weights = given[-1]
    weights = query.new_empty(*query.shape[:3], key.size(2)) if need_weights else _nothing(query)
    return in_heads(empty_output(query)), weights


def _call(
    query: Tensor, key: Tensor, alpha: Tensor, causal: bool, dropout: float, seed: Optional[Tensor]
) -> fused.Call:
    return fused.Call(query, key, alpha, causal, dropout, 0 if seed is None else int(seed))


def _rows(padding: Optional[Tensor]) -> Optional[Tensor]:
    return None if padding is None else dense_rows(padding)


def _nothing(query: Tensor) -> Tensor:
    """In place of a tensor that is not there: for torch, a result is always one."""
    return query.new_empty(query.size(0), 0)


_backward_operator = define_operator(
    f"attention_triton_backward({_ARGUMENTS}, Tensor lam, Tensor grad, bool need_alpha) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
    once(ONCE),
    merged_vmap((0, 1, 2, 4, 8, 9), seed=_SEED),
)
attention = define_operator(
    f"attention_triton({_ARGUMENTS}) -> (Tensor, Tensor)",
    _forward,
    _fake_forward,
    (_setup_context, _gradients),
    merged_vmap((0, 1, 2, 4), seed=_SEED),
)
step = define_operator(
    f"attention_triton_step({_TENSORS}, bool need_weights) -> (Tensor, Tensor)",
    _step,
    _fake_step,
    once("a decoding step has no gradient"),
    merged_vmap((0, 1, 2, 4)),
)


def fused_attention(inputs: AttentionInputs) -> tuple[Tensor, Optional[Tensor]]:
    """:func:`.fused.fused_attention`, by the operators where tensors are not plain."""
    query, key, value, alpha, padding, _, causal, dropout, need_weights = inputs
    if is_eager(query, key, value, alpha if isinstance(alpha, Tensor) else None, padding):
        return fused.fused_attention(inputs)
    alpha = alpha if isinstance(alpha, Tensor) else number_beside(alpha, query)
    alpha = alpha.to(query.device).contiguous()
    padding = None if padding is None else dense_rows(padding.to(torch.bool))
    if fused.is_step(query, key, value, alpha, dropout):
        output, weights = step(query, key, value, alpha, padding, need_weights)
        return output, weights if need_weights else None
    # a result of the graph: as a number, it would be the same in all calls of the graph
    seed = torch.randint(fused.MAX_SEED, ()) if dropout > 0 else None
    return attention(query, key, value, alpha, padding, causal, dropout, seed)[0], None
