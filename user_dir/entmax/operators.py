"""Operators of ``torch.library``: what torch.compile, torch.export and ``torch.func`` see of kernels.

A kernel reads memory, which traced, fake, meta and batched tensors do not have. Plain tensors skip the
operators, whose dispatch in Python would take longer than a small kernel (:func:`is_eager`).

Kernels without a second derivative say so. torch's ``once_differentiable`` raises an error only if an
incoming gradient requires a gradient itself. That of a scalar loss does not, so a gradient penalty or a
Hessian would silently lose the function's contribution.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
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
_modes = torch._C._len_torch_dispatch_stack
transformed = torch._C._are_functorch_transforms_active
"""Whether a transform of ``torch.func`` is active."""


def is_eager(*tensors: Any) -> bool:
    """Whether a kernel may read these tensors now: no tracing, transform, mode or subclass.

    Args:
        tensors: tensors, or None.
    """
    if _is_compiling() or _is_tracing() or transformed() or _modes() or forward_ad._current_level >= 0:
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or tensor.is_meta or not _has_storage(tensor)):
            return False
    return True


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
    """Register an operator, and return it; what it computes with may depend on the device.

    Args:
        schema: its name and signature, as in torch's ``native_functions.yaml``.
        compute: from tensors, which it does not change, to new tensors.
        fake: from the same arguments to empty tensors of the same shapes, dtypes and strides.
        gradient: setup_context and backward, as for :func:`torch.library.register_autograd`.
        vmap: as for :func:`torch.library.register_vmap`, after the operator.
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


class _Once(torch.autograd.Function):
    """The identity of some gradients, which raises an error where they are differentiated.

    They depend on all further arguments, without which autograd would find no path from a gradient to the
    function's inputs, and take its derivative for 0.
    """

    @staticmethod
    def forward(ctx: Any, error: str, count: int, *given: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        ctx.error = error
        return tuple(None if grad is None else grad.view_as(grad) for grad in given[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
        raise RuntimeError(ctx.error)


def once_differentiable(error: str) -> Callable:
    """Decorator of the ``backward`` of an autograd function that has no second derivative.

    That is called with ctx, the saved tensors and the incoming gradients. Each differentiable input must be
    among the saved tensors, itself or as a tensor made of it outside of the function: a copy that the
    function makes has no path to the input.

    Args:
        error: message of the RuntimeError that differentiating its gradients raises.
    """

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def once(ctx: Any, *incoming: Any) -> Any:
            saved = ctx.saved_tensors  # read once: activation checkpointing refuses a second time
            if not torch.is_grad_enabled():
                return backward(ctx, saved, *incoming)
            with torch.no_grad():
                grads = backward(ctx, saved, *incoming)
            grads = grads if isinstance(grads, tuple) else (grads,)
            fresh = (None if grad is None else grad.detach().requires_grad_() for grad in grads)
            sources = (x for x in (*saved, *incoming) if x is not None and x.requires_grad)
            return _Once.apply(error, len(grads), *fresh, *sources)

        return once

    return decorate


def merged_vmap(merged: Collection[int], seed: Optional[int] = None) -> Callable:
    """The ``vmap`` of an operator whose results are independent along the first dimension of some arguments.

    The batch becomes part of this dimension. If another argument has it too, the operator runs once for each
    of its entries; so it does if all entries have one seed, since numbers differ along the dimension.

    Args:
        merged: the positions of these arguments. All results must have this first dimension, too.
        seed: the position of the seed of random numbers, a tensor or None.
    """

    def vmap(operator: Callable, info: Any, in_dims: tuple, *given: Any) -> tuple:
        size, dims = info.batch_size, list(in_dims)
        arguments = [x if dim is None else x.movedim(dim, 0) for x, dim in zip(given, dims)]
        apart = any(dim is not None and place not in (*merged, seed) for place, dim in enumerate(dims))
        if seed is not None and arguments[seed] is not None:
            apart = apart or dims[seed] is None
        if apart:
            entries = ([x if dim is None else x[i] for x, dim in zip(arguments, dims)] for i in range(size))
            results = [torch.stack(each) for each in zip(*(operator(*entry) for entry in entries))]
            return tuple(results), (0,) * len(results)
        for place in merged:
            x = arguments[place]
            if x is not None:
                x = x if dims[place] is not None else x.expand(size, *x.shape)
                arguments[place] = x.flatten(0, 1)
        if seed is not None and arguments[seed] is not None:
            arguments[seed] = arguments[seed][0]
        results = [x.unflatten(0, (size, x.size(0) // size)) for x in operator(*arguments)]
        return tuple(results), (0,) * len(results)

    return vmap
