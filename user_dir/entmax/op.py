"""The public function: checks its arguments and selects an implementation."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from . import cpu, reference
from .alpha_checks import check_dim, check_number, check_range, check_shape
from .differentiable import Entmax, entmax_operator
from .masks import check_causal, check_masks, hide
from .operators import is_eager, number_beside
from .reference import working_dtype
from .selection import implementation_for


def entmax(scores: Tensor, alpha: Union[float, Tensor], dim: int = -1) -> Tensor:
    """Compute α-entmax of ``scores`` along ``dim``: softmax at α = 1, sparsemax at α = 2.

    Args:
        scores: any shape and any floating dtype; half precision is computed in float32. A score of −inf gets
            a weight of exactly 0.
        alpha: a number, or a tensor that broadcasts against ``scores`` with size 1 at ``dim``; for one α
            per head and scores (B, H, T, S), a tensor (H, 1, 1). At least 1. Above 2 the solver is slower,
            and a weight near 0 depends on the last digits of its score: for scores of N(0, 1), weights are
            off by up to 2e-4 at α = 3, 4e-3 at 4 and .1 at 10; in float64, by 2e-13, 4e-9 and .02.
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

    torch.compile, torch.export, ``torch.func``, fake and meta tensors see an operator of ``torch.library``,
    which selects its implementation when it runs. Forward-mode differentiation is an error.

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
        key_padding_mask: boolean (B, S), true where a key is padding.
        attn_mask: (T, S), added to the scores; or boolean, true where a query must not attend to a key.
        causal: query t attends to keys 0 … t only (T = S).

    Returns:
        Weights (B, H, T, S) of the dtype of ``scores``; zeros for a query whose keys are all masked.

    Raises:
        ValueError: as for :func:`entmax`; the scores do not have four dimensions; a mask does not broadcast
            to them; the key_padding_mask is not boolean, or the attn_mask neither boolean nor floating; or
            ``causal`` although T ≠ S.
    """
    if scores.dim() != 4:
        raise ValueError(f"attention scores must be (B, H, T, S), not of shape {tuple(scores.shape)}")
    check_causal(causal, scores.size(2), scores.size(3))
    check_masks(key_padding_mask, attn_mask, tuple(scores.shape))
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
            return _softmax(scores if masks is _NO_MASKS else hide(scores, *masks), dim)
        alpha = number_beside(alpha, scores)
    if not is_eager(scores, alpha, *masks[:2]):
        return entmax_operator(hide(scores, *masks), alpha, dim)
    implementation = implementation_for(scores)
    if implementation is not cpu:
        if implementation is reference:
            check_range(alpha)
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


def _softmax(scores: Tensor, dim: int) -> Tensor:
    """torch.softmax, except that rows that are all −inf give zeros (and zero gradients)."""
    if scores.numel() == 0:
        return torch.softmax(scores, dim)
    dtype = working_dtype(scores.dtype)
    weights = None
    if scores.device.type == "cpu" and is_eager(scores):  # another device would have to be waited for
        weights = torch.softmax(scores, dim, dtype=dtype)
        # A row that is all −inf gives all NaN, so its first entry is enough to detect it. Other NaN
        # propagate.
        if (weights.select(dim, 0) if weights.dim() > 0 else weights).isnan().any():
            weights = None
    if weights is None:
        empty = (scores == float("-inf")).all(dim, keepdim=True)
        weights = torch.softmax(scores.masked_fill(empty, 0.0), dim, dtype=dtype).masked_fill(empty, 0.0)
    return weights if dtype == scores.dtype else weights.to(scores.dtype)
