"""The public functions: they check their arguments, choose an implementation, and are differentiable."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from . import cpu, reference, self_check
from .checks import check_dim, check_number, check_shape
from .native import asked_backend
from .operators import define_operator, is_eager, once, transformed
from .reference import working_dtype
from .rows import as_rows, from_rows


def entmax(scores: Tensor, alpha: float | Tensor, dim: int = -1) -> Tensor:
    """Compute α-entmax of ``scores`` along ``dim``: softmax at α = 1, sparsemax at α = 2.

    Args:
        scores: any shape and any floating dtype; half precision is computed in float32. A score of −inf gets
            a weight of exactly 0.
        alpha: a number, or a tensor that broadcasts against ``scores`` with size 1 at ``dim``; for one α
            per head and scores (B, H, T, S), a tensor (H, 1, 1). At least 1. Above 2 the solver is slower,
            and weights near 0 are less exact: for scores of N(0, 1), by 2e-4 at α = 3 and 4e-3 at 4.
        dim: the dimension along which the weights sum to 1.

    Returns:
        Weights of the shape and dtype of ``scores``; zeros for a row that is all −inf. Differentiable, also
        twice, in ``scores`` and in an ``alpha`` tensor. At α = 1 the result is exactly torch's softmax.

    Raises:
        ValueError: α is below 1, infinite or NaN (the message names the value), its shape does not fit,
            ``dim`` is out of range, or ``scores`` are not floating. On a GPU, an invalid value in an α tensor
            gives NaN weights instead, because checking it would synchronise with the device.

    The environment variable ENTMAX_BACKEND selects the implementation: ``native``, compiled for the device,
    or ``reference``, plain torch. The default is the native one where it is available; on a GPU, if it also
    agrees with the reference on a few rows (:mod:`.self_check`). Forward-mode differentiation is an error.

    Source: Peters et al. 2019 (https://arxiv.org/abs/1905.05702), equation 3; the gradient of α is
    Proposition 1 of Correia et al. 2019 (https://arxiv.org/abs/1909.00015).
    """
    if not scores.is_floating_point():
        raise ValueError(f"scores must be of a floating dtype, not {scores.dtype}")
    check_dim(dim, scores)
    if isinstance(alpha, Tensor):
        check_shape(alpha, scores, dim)
    else:
        check_number(alpha)
        if alpha == 1:
            return _softmax(scores, dim)
        # filled on the device: a copy from the host would synchronise
        alpha = scores.new_full((), alpha, dtype=torch.float64)
    if not is_eager(scores, alpha):
        return entmax_operator(scores, alpha, dim)
    return Entmax.apply(scores, alpha, dim, implementation_for(scores))


def _softmax(scores: Tensor, dim: int) -> Tensor:
    """torch.softmax, except that rows that are all −inf give zeros (and zero gradients)."""
    if scores.numel() == 0:
        return torch.softmax(scores, dim)
    dtype = working_dtype(scores.dtype)
    weights = None
    if scores.device.type == "cpu" and is_eager(scores):  # on other devices this would synchronise
        weights = torch.softmax(scores, dim, dtype=dtype)
        # A row that is all −inf gives all NaN, so its first entry is enough. NaN of other rows propagate.
        if (weights.select(dim, 0) if weights.dim() > 0 else weights).isnan().any():
            weights = None
    if weights is None:
        empty = (scores == float("-inf")).all(dim, keepdim=True)
        weights = torch.softmax(scores.masked_fill(empty, 0.0), dim, dtype=dtype).masked_fill(empty, 0.0)
    return weights if dtype == scores.dtype else weights.to(scores.dtype)


def implementation_for(scores: Tensor) -> ModuleType:
    """The module that computes α-entmax of these scores: ``cpu``, ``triton`` or ``reference``.

    Raises:
        ValueError: ENTMAX_BACKEND has an unknown value, or names an implementation that is not available.
    """
    native = native_for(scores.device.type)
    if native is None or native is cpu or asked_backend() == "native":
        return native or reference
    # The reference cannot be captured into a CUDA graph, so without a verdict it is no alternative.
    passed = self_check.passes("α-entmax", _problems, scores.device, scores.dtype)
    return reference if passed is False else native


def has_native(device: str) -> bool:
    """Whether compiled code computes α-entmax on a device type, ``cpu`` or ``cuda``."""
    return native_for(device) is not None


def native_for(device: str) -> ModuleType | None:
    """The module of compiled code for a device type, ``cpu`` or ``triton``; None if there is none.

    Raises:
        ValueError: the environment variable ENTMAX_BACKEND has an unknown value, or is ``native`` where there
            is none.
    """
    asked = asked_backend()
    native = None if asked == "reference" else _native(device)
    if native is None and asked == "native":
        raise ValueError(f"ENTMAX_BACKEND=native: no native α-entmax is available for {device}; unset it")
    return native


@functools.cache
def _native(device: str) -> ModuleType | None:
    if device == "cpu" and cpu.kernels.available():
        return cpu
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        return importlib.import_module(".triton", __package__)
    return None


def _problems(generator: torch.Generator, dtype: torch.dtype) -> self_check.Problems:
    """Rows so short that a Triton program takes several, longer rows, and rows that it reads tile by tile."""
    from . import triton

    alpha = torch.tensor(self_check.ALPHAS).view(-1, 1, 1)
    for n in (19, 200, triton.RESIDENT + 7):
        scores = 2 * torch.randn(len(alpha), 3, n, generator=generator)
        scores[:, 0, n // 2 :] = float("-inf")
        kernel, plain = (
            lambda z, a, implementation=implementation: (Entmax.apply(z, a, -1, implementation),)
            for implementation in (triton, reference)
        )
        yield kernel, plain, [scores, alpha]


class Entmax(torch.autograd.Function):
    """Autograd function around an implementation; saves only the output and α.

    An implementation is a module with the ``entmax_forward`` and ``entmax_backward`` of ``reference``.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor, dim: int, implementation: Any) -> Tensor:
        """Weights; see :func:`reference.entmax_forward`."""
        weights = implementation.entmax_forward(scores, alpha, dim)
        ctx.save_for_backward(weights, alpha)
        ctx.dim, ctx.implementation = dim, implementation
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of scores and α; see :func:`reference.entmax_backward`."""
        return *_gradients(ctx, grad), None, None


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
    weights, alpha = ctx.saved_tensors
    arguments = weights, alpha, grad, ctx.dim, ctx.needs_input_grad[1]
    if torch.is_grad_enabled() or transformed():  # for a second derivative, torch uses the plain formula
        return reference.entmax_backward(*arguments)
    if ctx.implementation is not None and is_eager(weights, alpha, grad):
        return ctx.implementation.entmax_backward(*arguments)
    grad_scores, grad_alpha = entmax_backward(*arguments)
    return grad_scores, grad_alpha if ctx.needs_input_grad[1] else None


def _forward(scores: Tensor, alpha: Tensor, dim: int) -> Tensor:
    return _in_rows(implementation_for(scores).entmax_forward(scores, alpha, dim), dim)


def _in_rows(tensor: Tensor, dim: int) -> Tensor:
    """The same numbers in the memory order of the kernels: one row after the other."""
    if tensor.numel() == 0:
        return tensor.contiguous()
    return from_rows(as_rows(tensor, dim), tensor, dim)


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    _, alpha, ctx.dim = inputs
    ctx.implementation = None
    ctx.save_for_backward(output, alpha)


def _backward(
    weights: Tensor, alpha: Tensor, grad: Tensor, dim: int, need_alpha: bool
) -> tuple[Tensor, Tensor]:
    implementation = implementation_for(weights)
    grad_scores, grad_alpha = implementation.entmax_backward(weights, alpha, grad, dim, need_alpha)
    grad_alpha = alpha.new_empty(0) if grad_alpha is None else grad_alpha.contiguous()
    return _in_rows(grad_scores, dim), grad_alpha


def _fake_backward(
    weights: Tensor, alpha: Tensor, grad: Tensor, dim: int, need_alpha: bool
) -> tuple[Tensor, Tensor]:
    grad_alpha = alpha.new_empty(alpha.shape if need_alpha else 0)
    return _in_rows(torch.empty_like(weights), dim), grad_alpha


entmax_backward = define_operator(
    "entmax_backward(Tensor weights, Tensor alpha, Tensor grad, int dim, bool need_alpha) "
    "-> (Tensor, Tensor)",
    _backward,
    _fake_backward,
    once("the gradient of entmax cannot be differentiated here"),
)
entmax_operator = define_operator(
    "entmax(Tensor scores, Tensor alpha, int dim) -> Tensor",
    _forward,
    lambda scores, alpha, dim: _in_rows(torch.empty_like(scores), dim),
    (_setup_context, lambda ctx, grad: (*_gradients(ctx, grad), None)),
)


def onnx_translations() -> dict[Callable, Any]:
    """The ``custom_translation_table`` of ``torch.onnx.export(…, dynamo=True)``; needs onnxscript."""
    from . import onnx

    return {entmax_operator: onnx.entmax}
