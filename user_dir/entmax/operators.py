"""Operators of ``torch.library``: what torch.compile, torch.export and ``torch.func`` see of kernels.

A kernel reads memory, which traced, fake, meta and batched tensors do not have. Plain tensors skip the
operators, whose dispatch in Python would take longer than a small kernel (:func:`is_eager`).

Kernels without a second derivative raise an error for it. torch's ``once_differentiable`` does not if the
incoming gradient needs none itself, as for a scalar loss: a gradient penalty would silently lose a term.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad

# The package's own name, so that the installed package and a checkout can be imported together.
NAMESPACE = __name__.partition(".")[0]
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_PLAIN = (Tensor, torch.nn.Parameter)
# Bound here because they are called in each call of a kernel.
_is_compiling, _has_storage = torch.compiler.is_compiling, torch._C._has_storage
_is_tracing = torch._C._is_tracing  # by torch.jit.trace, which would not record what a kernel writes
_modes = torch._C._len_torch_dispatch_stack
transformed = torch._C._are_functorch_transforms_active
"""Whether a transform of ``torch.func`` is active."""


def is_eager(*tensors: Any) -> bool:
    """Whether a kernel may read these tensors (or None) now: no tracing, transform, mode or subclass."""
    if _is_compiling() or _is_tracing() or transformed() or _modes() or forward_ad._current_level >= 0:
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or tensor.is_meta or not _has_storage(tensor)):
            return False
    return True


def exporting_to_onnx() -> bool:
    """Whether ``torch.onnx.export`` traces now: ONNX has no operators of ours."""
    return _is_compiling() and torch.onnx.is_in_onnx_export()


def constant_in_graphs(function: Callable) -> Callable:
    """Decorator: torch.compile calls the function once and treats its result as a constant.

    ``torch.compiler.assume_constant_result`` does so, too, but imports the compiler, which takes seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def define_operator(
    schema: str, compute: Callable, fake: Callable, gradient: tuple[Callable, Callable]
) -> Callable[..., Any]:
    """Register an operator and return it; ``compute`` may choose its implementation by device.

    Under ``torch.vmap`` it is called once for each entry of the batch.

    Args:
        schema: its name and signature, as in torch's ``native_functions.yaml``.
        compute: from tensors, which it does not change, to new tensors.
        fake: from the same arguments to empty tensors of the same shapes, dtypes and strides.
        gradient: setup_context and backward, as for :func:`torch.library.register_autograd`.
    """
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    name = schema.partition("(")[0]
    qualified = f"{NAMESPACE}::{name}"
    _library.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, fake, lib=_library)
    operator = getattr(getattr(torch.ops, NAMESPACE), name).default
    setup_context, backward = gradient
    _library.impl(name, _autograd_kernel(operator, setup_context, backward), "Autograd", with_keyset=True)
    torch.library.register_vmap(qualified, functools.partial(_vmap, operator), lib=_library)
    return operator


def _vmap(operator: Callable, info: Any, in_dims: tuple, *values: Any) -> tuple:
    results = []
    for i in range(info.batch_size):
        results.append(operator(*(x if dim is None else x.select(dim, i) for x, dim in zip(values, in_dims))))
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(map(torch.stack, zip(*results))), (0,) * len(results[0])


def _autograd_kernel(operator: Any, setup_context: Callable, backward: Callable) -> Callable:
    """What :func:`torch.library.register_autograd` registers, but also for the transforms of ``torch.func``.

    The transforms call the kernel with tensors of one level at a time, as they call the kernels of torch's
    own operators; a plain ``autograd.Function`` would handle all levels again in each of these calls.
    """

    def below(keyset: Any, *arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)

    class Differentiable(torch.autograd.function._SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, *operands: Any) -> Any:
            *arguments, keyset = operands
            with torch.set_grad_enabled(transformed()):  # a transform around this one differentiates, too
                results = below(keyset, *arguments)
            setup_context(ctx, arguments, results)
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return *backward(ctx, *grads), None

    def kernel(keyset: Any, *arguments: Any) -> Any:
        learning = torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments)
        if learning or forward_ad._current_level >= 0:  # Differentiable raises an error in forward mode
            with enable_single_level_autograd_function():
                return Differentiable.apply(*arguments, keyset)  # type: ignore[attr-defined]
        return below(keyset, *arguments)

    return kernel


def once(error: str) -> tuple[Callable, Callable]:
    """The ``gradient`` of an operator that computes gradients: it raises a RuntimeError with this message."""

    def backward(ctx: Any, *grads: Any) -> tuple:
        raise RuntimeError(error)

    return lambda ctx, inputs, output: None, backward
