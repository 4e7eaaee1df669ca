"""Attention by a fused kernel: its autograd function, and its operators of ``torch.library``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_type_hints

import torch
from torch import Tensor

from ..entmax.checks import as_numbers
from ..entmax.operators import define_operator, exporting_to_onnx, is_eager, once, transformed
from ..entmax.reference import working_dtype
from .inputs import AttentionInputs, Backend, KernelInputs

ONCE = "fused attention cannot be differentiated twice; use the attention backend dense"
_TYPES = {Tensor: "Tensor", Tensor | None: "Tensor?", bool: "bool", float: "float"}
_SCHEMA = ", ".join(f"{_TYPES[kind]} {name}" for name, kind in get_type_hints(KernelInputs).items())
_TENSORS = 6  # how many fields of KernelInputs, from the first on, are saved by autograd

Saved = tuple[Tensor | None, ...]
Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Gradients of queries, keys and values; and, if needed, parts (B, H, …) that sum to that of α."""


class FusedKernel(Backend):
    """The kernels of a type of device. A subclass runs them; the rest is the same for all.

    Attributes:
        operator: the name of its operator; the operator of its gradients appends ``_backward``.
        seeds: the seed of dropout is below this number.
        dtypes: the dtypes that queries, keys and values may have.
        parts_dtype: the dtype of the parts of the gradient of α.
    """

    name = "fused"
    operator: str
    seeds: int
    dtypes: Collection[torch.dtype]
    parts_dtype: torch.dtype

    def __init__(self) -> None:
        self._backward_operator = define_operator(
            f"{self.operator}_backward({_SCHEMA}, Tensor saved, Tensor grad, Tensor? grad_weights, "
            "bool need_alpha) -> (Tensor, Tensor, Tensor, Tensor)",
            self._operate_backward,
            self._fake_backward,
            once(ONCE),
        )
        self._operator = define_operator(
            f"{self.operator}({_SCHEMA}, bool need_weights, bool save) -> (Tensor, Tensor, Tensor)",
            self._operate,
            self._fake,
            (_setup_context, self._gradients),
        )

    def forward(
        self, inputs: KernelInputs, need_weights: bool, save: bool, fixed_sizes: bool = False
    ) -> tuple[Tensor, Tensor | None, Saved]:
        """Output (T, B, H, D), weights (B, H, T, S) if needed, and what the backward needs if ``save``.

        Rows of queries, keys and values are contiguous. ``fixed_sizes``: save what :meth:`saved_like` gives.
        """
        raise NotImplementedError

    def backward(
        self,
        inputs: KernelInputs,
        saved: Saved,
        grad: Tensor,
        grad_weights: Tensor | None,
        need_alpha: bool,
    ) -> Gradients:
        """The gradients, given those of output and weights."""
        raise NotImplementedError

    def saved_like(self, inputs: KernelInputs) -> Tensor:
        """An empty tensor (B, …) like what ``forward`` saves if ``fixed_sizes``."""
        raise NotImplementedError

    def unsupported(self, inputs: AttentionInputs) -> str | None:
        """See the base class."""
        query, key, value, alpha, *_ = inputs
        if exporting_to_onnx():
            return "ONNX does not have its operator"
        if query.dtype not in self.dtypes or not query.dtype == key.dtype == value.dtype:
            dtypes = " and ".join(sorted({str(tensor.dtype) for tensor in (query, key, value)}))
            return f"it takes {' or '.join(map(str, self.dtypes))}, not {dtypes}"
        if query.size(-1) != value.size(-1):
            return f"keys have the head dimension {query.size(-1)}, but values {value.size(-1)}"
        if not query.numel() or not key.numel():
            return "there are no queries or no keys"
        per_head = (query.size(1), 1, 1)
        if isinstance(alpha, Tensor) and alpha.numel() != 1 and alpha.shape not in (per_head, (1, *per_head)):
            return f"alpha has the shape {tuple(alpha.shape)}, not one entry per head"
        return super().unsupported(inputs)

    def compute(self, arguments: AttentionInputs) -> tuple[Tensor, Tensor | None]:
        """See the base class; calls the operators if tensors are not plain."""
        query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, need_weights = arguments
        learned = alpha if isinstance(alpha, Tensor) else None
        eager = is_eager(query, key, value, learned, key_padding_mask, attn_mask)
        if isinstance(alpha, Tensor):
            alpha = alpha.to(query.device).contiguous()
        else:  # filled on the device: a copy from the host would synchronise
            alpha = query.new_full((), alpha, dtype=torch.float64)
        if attn_mask is not None:
            attn_mask = as_numbers(attn_mask, working_dtype(query.dtype))
        # Kernels draw random numbers from a seed, so that the backward can draw the same again. The seed is
        # drawn on the device, which avoids a synchronisation and gives each replay of a CUDA graph another.
        seed = torch.randint(self.seeds, (), device=query.device) if dropout > 0.0 else None
        inputs = (query, key, value, alpha, key_padding_mask, attn_mask, causal, dropout, seed)
        learning = is_learning(query, key, value, alpha)
        if not eager:
            output, weights, _ = self._operator(*inputs, need_weights, learning)
            return output, weights if need_weights else None
        if learning:
            output, weights = _Attention.apply(self, *_with_dense_rows(inputs), need_weights)
        else:
            output, weights, _ = self.forward(_with_dense_rows(inputs), need_weights, False)
        return in_heads(output), weights

    # Operators cannot return None, so they return an empty tensor instead.

    def _operate(self, *operands: Any) -> tuple[Tensor, Tensor, Tensor]:
        *arguments, need_weights, save = operands
        inputs = _with_dense_rows(arguments)
        output, weights, saved = self.forward(inputs, need_weights, save, fixed_sizes=True)
        kept = saved[0] if save else None
        return in_heads(output), _or_nothing(weights, inputs.query), _or_nothing(kept, inputs.query)

    def _fake(self, *operands: Any) -> tuple[Tensor, Tensor, Tensor]:
        *arguments, need_weights, save = operands
        inputs = KernelInputs(*arguments)
        query = inputs.query
        weights = query.new_empty(*query.shape[:3], inputs.key.size(2)) if need_weights else None
        saved = self.saved_like(inputs) if save else None
        return in_heads(empty_output(query)), _or_nothing(weights, query), _or_nothing(saved, query)

    def _gradients(self, ctx: Any, grad: Tensor | None, grad_weights: Tensor | None, _: Any) -> tuple:
        *tensors, seed, saved = ctx.saved_tensors
        if ctx.needs_input_grad[5]:
            raise RuntimeError(
                "fused attention has no gradient of attn_mask; use the attention backend dense"
            )
        if not ctx.save:
            raise RuntimeError("fused attention was called under torch.no_grad")
        query, alpha, need_alpha = tensors[0], tensors[3], ctx.needs_input_grad[3]
        grad = torch.zeros_like(query) if grad is None else grad
        grad_weights = grad_weights if ctx.need_weights else None
        operands = (*tensors, ctx.causal, ctx.dropout, seed, saved, grad, grad_weights, need_alpha)
        *grads, parts = self._backward_operator(*operands)
        return *grads, gradient_of_alpha(parts, alpha) if need_alpha else None, *[None] * 7

    def _operate_backward(self, *operands: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        *arguments, saved, grad, grad_weights, need_alpha = operands
        inputs, kept = _with_dense_rows(arguments), (saved.contiguous(),)
        *grads, parts = self.backward(inputs, kept, dense_rows(grad), grad_weights, need_alpha)
        per_head = parts.flatten(2).sum(2) if parts is not None and parts.dim() > 2 else parts
        return grads[0], grads[1], grads[2], _or_nothing(per_head, grad)

    def _fake_backward(self, *operands: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query, key, value = [torch.empty_like(dense_rows(tensor)) for tensor in operands[:3]]
        need_alpha = operands[-1]
        per_head = query.new_empty(query.shape[:2], dtype=self.parts_dtype) if need_alpha else None
        return query, key, value, _or_nothing(per_head, operands[-3])


class _Attention(torch.autograd.Function):
    """Autograd function around the kernels, for plain tensors."""

    @staticmethod
    def forward(ctx: Any, kernel: FusedKernel, *operands: Any) -> tuple[Tensor, Tensor | None]:
        """Output, as (T, B, H, D) because a returned view cannot be modified in place; and weights."""
        *arguments, need_weights = operands
        inputs = KernelInputs(*arguments)
        output, weights, saved = kernel.forward(inputs, need_weights, True)
        ctx.save_for_backward(*inputs[:_TENSORS], *saved)
        ctx.kernel, ctx.settings = kernel, inputs[_TENSORS:]
        ctx.set_materialize_grads(False)
        return output, weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_weights: Tensor | None) -> tuple:
        """Gradients of queries, keys, values and α."""
        if torch.is_grad_enabled():  # by create_graph
            raise RuntimeError(ONCE)
        kept = ctx.saved_tensors
        inputs, saved = KernelInputs(*kept[:_TENSORS], *ctx.settings), kept[_TENSORS:]
        grad = torch.zeros_like(inputs.query) if grad is None else dense_rows(in_heads(grad))
        need_alpha = ctx.needs_input_grad[4]
        *grads, parts = ctx.kernel.backward(inputs, saved, grad, grad_weights, need_alpha)
        grad_alpha = None if parts is None else gradient_of_alpha(parts, inputs.alpha)
        return None, *grads, grad_alpha, *[None] * 6


def is_learning(*tensors: Tensor) -> bool:
    """Whether a gradient may be needed; assumed inside ``torch.func`` and in a trace, where it is unknown."""
    if torch.jit.is_tracing():
        return True
    return torch.is_grad_enabled() and (transformed() or any(tensor.requires_grad for tensor in tensors))


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.dropout, seed, ctx.need_weights, ctx.save = inputs
    ctx.save_for_backward(*tensors, seed, output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _with_dense_rows(operands: Any) -> KernelInputs:
    query, key, value, *others = operands
    return KernelInputs(dense_rows(query), dense_rows(key), dense_rows(value), *others)


def _or_nothing(tensor: Tensor | None, like: Tensor) -> Tensor:
    return tensor if tensor is not None else like.new_empty(like.size(0), 0)


def dense_rows(tensor: Tensor) -> Tensor:
    """The tensor with contiguous rows, which are those of ``empty_like`` too; a projection is not copied."""
    *others, last = tensor.stride()
    return tensor if last == 1 and 1 not in others else tensor.contiguous()  # 1 twice: rows overlap


def empty_output(query: Tensor) -> Tensor:
    """An empty output (T, B, H, D) for queries (B, H, T, D), in the memory order of the output projection."""
    batch, heads, queries, head_dim = query.shape
    return query.new_empty(queries, batch, heads, head_dim)


def in_heads(output: Tensor) -> Tensor:
    """An output (T, B, H, D) as (B, H, T, D).

    Not for use inside an autograd function, whose returned views cannot be modified in place.
    """
    return output.permute(1, 2, 0, 3)


def gradient_of_alpha(parts: Tensor, alpha: Tensor) -> Tensor:
    """Sum the gradients of α per sentence, head and perhaps tile, (B, H, …), to α's shape and dtype."""
    over = None if alpha.numel() == 1 else [dim for dim in range(parts.dim()) if dim != 1]
    return parts.sum(over).to(alpha.dtype).view(alpha.shape)
