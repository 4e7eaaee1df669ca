"""The public function: checks its arguments and selects an implementation."""

from __future__ import annotations

import functools
import importlib.util
import os
from types import ModuleType
from typing import Any, Optional, Union

import torch
from torch import Tensor

from . import cpu, reference
from .checks import check_dim, check_number, check_range, check_shape
from .masks import hide
from .reference import working_dtype
from .self_check import entmax_check


def entmax(scores: Tensor, alpha: Union[float, Tensor], dim: int = -1) -> Tensor:
    """Compute α-entmax of ``scores`` along ``dim``: softmax at α = 1, sparsemax at α = 2.

    Args:
        scores: any shape and any floating dtype; half precision is computed in float32. A score of −inf gets
            a weight of exactly 0.
        alpha: a number, or a tensor that broadcasts against ``scores`` with size 1 at ``dim``; for one α
            per head and scores (B, H, T, S), a tensor (H, 1, 1). At least 1. Above 2 the solver is slower,
            and in float32 less exact between scores that are nearly equal (1e-3 at α = 4 to 10).
        dim: the dimension along which the weights sum to 1.

    Returns:
        Weights of the shape and dtype of ``scores``; zeros for a row that is all −inf. Differentiable, also
        twice, in ``scores`` and in an ``alpha`` tensor. At α = 1 the result is exactly torch's softmax.

    Raises:
        ValueError: α is below 1, infinite or NaN (the message names the value), its shape does not fit,
            ``dim`` is out of range, or ``scores`` are not floating. On a GPU, an invalid value in an α tensor
            gives NaN weights instead, because checking it would synchronise with the device. Also raised if
            ENTMAX_BACKEND has an unknown value or names a backend that is not available.

    The environment variable ENTMAX_BACKEND selects the implementation: ``native``, compiled for the device,
    or ``reference``, plain torch. The default is the native one where it is available; on a GPU, if it also
    agrees with the reference on a few rows, which is checked once per process for each device and dtype.

    Source: Peters et al. 2019 (https://arxiv.org/abs/1905.05702), equation 3; the gradient of α is
    Proposition 1 of Correia et al. 2019 (https://arxiv.org/abs/1909.00015).
    """
    return _entmax(scores, alpha, dim)


def attention_weights(
    scores: Tensor,
    alpha: Union[float, Tensor],
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    causal: bool = False,
) -> Tensor:
    """α-entmax of attention scores over the keys that are not masked; the CPU kernel reads masks in place.

    Args:
        scores: (B, H, T, S), of any floating dtype.
        alpha: as for :func:`entmax`.
        key_padding_mask: (B, S), true where a key is padding.
        attn_mask: (T, S), added to the scores; or boolean, true where a query must not attend to a key.
        causal: query t attends to keys 0 … t only.

    Returns:
        Weights (B, H, T, S) of the dtype of ``scores``; zeros for a query whose keys are all masked.

    Raises:
        ValueError: as for :func:`entmax`; the scores do not have four dimensions; or the attn_mask is neither
            boolean nor floating.
    """
    if scores.dim() != 4:
        raise ValueError(f"attention scores must be (B, H, T, S), not of shape {tuple(scores.shape)}")
    return _entmax(scores, alpha, -1, (key_padding_mask, attn_mask, causal))


_NO_MASKS = (None, None, False)


def _entmax(scores: Tensor, alpha: Union[float, Tensor], dim: int, masks: tuple = _NO_MASKS) -> Tensor:
    if not scores.is_floating_point():
        raise ValueError(f"scores must be of a floating dtype, not {scores.dtype}")
    check_dim(dim, scores)
    if isinstance(alpha, Tensor):
        check_shape(alpha, scores, dim)
    else:
        check_number(alpha)
        if alpha == 1:
            return _softmax(hide(scores, *masks), dim)
        alpha = torch.tensor(alpha, dtype=torch.float64, device=scores.device)
    implementation = _implementation(scores.device.type)
    if implementation not in (cpu, reference) and not _trusted(scores):
        implementation = reference
    if implementation is not cpu:
        if implementation is reference:
            check_range(alpha.detach())
        return Entmax.apply(hide(scores, *masks), alpha, dim, implementation)
    if _kernel_cannot_read(scores, *masks):
        scores, masks = hide(scores, *masks), _NO_MASKS
    return Entmax.apply(scores, alpha, dim, cpu, *masks)


def _kernel_cannot_read(
    scores: Tensor, key_padding_mask: Optional[Tensor], attn_mask: Optional[Tensor], causal: bool
) -> bool:
    """Whether a mask needs a gradient or does not have the usual shape, which the kernel does not support."""
    if attn_mask is not None and (attn_mask.requires_grad or attn_mask.shape != scores.shape[-2:]):
        return True
    return key_padding_mask is not None and key_padding_mask.shape != (scores.size(0), scores.size(-1))


def _implementation(device: str) -> ModuleType:
    """The module that computes on a device type. Raises ValueError if ENTMAX_BACKEND is not available."""
    asked = os.environ.get("ENTMAX_BACKEND", "")
    if asked not in ("", "native", "reference"):
        raise ValueError(f"ENTMAX_BACKEND={asked} is not valid: use native or reference, or unset it")
    native = None if asked == "reference" else _native(device)
    if native is None and asked == "native":
        raise ValueError(f"ENTMAX_BACKEND=native: no native α-entmax is available for {device}; unset it")
    return native or reference


def _trusted(scores: Tensor) -> bool:
    """Whether the GPU kernel is requested by name, or agrees with the reference (``self_check``).

    Also true while a CUDA graph is captured before the check was made, because the reference synchronises
    with the device and cannot be captured.
    """
    if os.environ.get("ENTMAX_BACKEND") == "native":
        return True
    return entmax_check.passes(scores.device, scores.dtype) is not False


def has_native(device: str) -> bool:
    """Whether compiled code computes α-entmax on a device type, ``cpu`` or ``cuda``.

    Raises:
        ValueError: the environment variable ENTMAX_BACKEND has an unknown value, or is ``native`` where no
            native implementation is available.
    """
    return _implementation(device) is not reference


@functools.cache
def _native(device: str) -> Optional[ModuleType]:
    if device == "cpu" and cpu.kernel() is not None:
        return cpu
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        return importlib.import_module(".triton", __package__)
    return None


class Entmax(torch.autograd.Function):
    """Autograd function around an implementation; saves only the output and α.

    An implementation is a module with the ``entmax_forward`` and ``entmax_backward`` of ``reference``; the
    forward of ``cpu`` takes masks as well.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, alpha: Tensor, dim: int, implementation: ModuleType, *masks: Any
    ) -> Tensor:
        """Weights; see :func:`reference.entmax_forward`."""
        weights = implementation.entmax_forward(scores, alpha, dim, *masks)
        ctx.save_for_backward(weights, alpha)
        ctx.dim, ctx.implementation, ctx.arguments = dim, implementation, 4 + len(masks)
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Optional[Tensor], ...]:
        """Gradients of scores and α; see :func:`reference.entmax_backward`."""
        weights, alpha = ctx.saved_tensors
        # torch itself differentiates the plain formula of the reference for second derivatives
        implementation = reference if torch.is_grad_enabled() else ctx.implementation
        grads = implementation.entmax_backward(weights, alpha, grad, ctx.dim, ctx.needs_input_grad[1])
        return grads + (None,) * (ctx.arguments - 2)


def _softmax(scores: Tensor, dim: int) -> Tensor:
    """torch.softmax, except that rows that are all −inf give zeros (and zero gradients)."""
    if scores.numel() == 0:
        return torch.softmax(scores, dim)
    dtype = working_dtype(scores.dtype)
    weights = torch.softmax(scores, dim, dtype=dtype)
    # A row that is all −inf gives all NaN, so its first entry is enough to detect it. Other NaN propagate.
    if (weights.select(dim, 0) if weights.dim() > 0 else weights).isnan().any():
        empty = (scores == float("-inf")).all(dim, keepdim=True)
        weights = torch.softmax(scores.masked_fill(empty, 0.0), dim, dtype=dtype).masked_fill(empty, 0.0)
    return weights.to(scores.dtype)
