"""Operators of ``torch.library``: what torch.compile, torch.export and ``torch.func`` see of kernels.

A kernel reads memory, which traced, fake, meta and batched tensors do not have. Plain tensors skip the
operators, whose dispatch in Python would take longer than a small kernel (:func:`is_eager`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional

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
_transformed, _modes = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack


def is_eager(*tensors: Any) -> bool:
    """Whether a kernel may read these tensors now: no tracing, transform, mode or subclass.

    Args:
        tensors: tensors, or None.
    """
    if _is_compiling() or _is_tracing() or _transformed() or _modes() or forward_ad._current_level >= 0:
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or tensor.is_meta or not _has_storage(tensor)):
            return False
    return True


def transformed() -> bool:
    """Whether a transform of ``torch.func`` is active."""
    return _transformed()


def exporting_to_onnx() -> bool:
    """Whether ``torch.onnx.export`` traces now: ONNX has no operators of ours."""
    return _is_compiling() and torch.onnx.is_in_onnx_export()


def number_beside(number: float, tensor: Tensor) -> Tensor:
    """A number in float64, on the device of a tensor; fake if that is."""
    if type(tensor) in _PLAIN or transformed():  # new_full would give a number to each entry of a batch
        # filled on the device: a copy from the host would synchronise
        return torch.full((), number, dtype=torch.float64, device=tensor.device)
    return tensor.new_full((), number, dtype=torch.float64)


def constant_in_graphs(function: Callable) -> Callable:
    """Decorator: torch.compile calls the function once, and takes its result for a constant.

    That of torch.compiler, ``assume_constant_result``, imports the compiler, which takes seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def define_operator(
    schema: str,
    compute: Callable,
    fake: Callable,
    gradient: tuple[Callable, Callable],
    vmap: Optional[Callable] = None,
) -> Callable[..., Any]:
    """Register an operator; what it computes with may depend on the device.

    Args:
        schema: its name and signature, as in torch's ``native_functions.yaml``.
        compute: from tensors, which it does not change, to new tensors.
        fake: from the same arguments to empty tensors of the same shapes, dtypes and strides.
        gradient: setup_context and backward, as for :func:`torch.library.register_autograd`.
        vmap: as for :func:`torch.library.register_vmap`, after the operator.

    Returns:
        The operator.
    """
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    name = schema.partition("(")[0]
    qualified = f"{NAMESPACE}::{name}"
    _library.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, fake, lib=_library)
    operator = getattr(getattr(torch.ops, NAMESPACE), name).default
    setup_context, backward = gradient
    _library.impl(name, _autograd_kernel(operator, setup_context, backward), "Autograd", with_keyset=True)
    if vmap is not None:
        torch.library.register_vmap(qualified, functools.partial(vmap, operator), lib=_library)
    return operator


def _autograd_kernel(operator: Any, setup_context: Callable, backward: Callable) -> Callable:
    """What :func:`torch.library.register_autograd` registers, but also for the transforms of ``torch.func``.

    These call it with tensors of a single level, as they call the kernels of torch's own operators; what an
    ``autograd.Function`` does with all levels at once must not happen again.
    """

    def below(keyset: Any, *arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)

    class Differentiable(torch.autograd.function._SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            *arguments, keyset = given
            with torch.set_grad_enabled(transformed()):  # a transform around this one differentiates, too
                results = below(keyset, *arguments)
            setup_context(ctx, arguments, results)
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return *backward(ctx, *grads), None

    def kernel(keyset: Any, *arguments: Any) -> Any:
        learning = torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments)
        if learning or forward_ad._current_level >= 0:  # which refuses to differentiate in forward mode
            with enable_single_level_autograd_function():
                return Differentiable.apply(*arguments, keyset)  # type: ignore[attr-defined]
        return below(keyset, *arguments)

    return kernel


def once(error: str) -> tuple[Callable, Callable]:
    """The ``gradient`` of an operator that computes gradients: a RuntimeError with this message."""

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    def backward(ctx: Any, *grads: Any) -> tuple:
        raise RuntimeError(error)

    return setup_context, backward
