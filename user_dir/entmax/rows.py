"""Views of score tensors as matrices of rows, for kernels that work on rows."""

from __future__ import annotations

import math

from torch import Tensor


def as_rows(tensor: Tensor, dim: int) -> Tensor:
    """``tensor`` with ``dim`` moved last, contiguous, as (rows, n); copies only if needed."""
    if tensor.dim() == 0:
        tensor = tensor.reshape(1)
    elif not _is_last(dim, tensor):
        tensor = tensor.movedim(dim, -1)
    return tensor.contiguous().view(-1, tensor.size(-1))


def from_rows(rows: Tensor, like: Tensor, dim: int) -> Tensor:
    """The inverse of :func:`as_rows`: a view of ``rows`` in the shape of ``like``."""
    if like.dim() == 0 or _is_last(dim, like):
        return rows.view(like.shape)
    return rows.view(like.movedim(dim, -1).shape).movedim(-1, dim)


def alpha_per_row(alpha: Tensor, scores: Tensor, dim: int) -> tuple[Tensor, int]:
    """α as a contiguous vector, and how many consecutive rows share each of its entries.

    Row r of :func:`as_rows` has α ``vector[(r // repeat) % len(vector)]``: with one α per head and scores
    (B, H, T, S), the vector is (H,) and T rows share an entry. The vector has an entry per row only if α
    varies along dimensions that are not adjacent.
    """
    if alpha.numel() == 1:
        return alpha.reshape(1), 1  # a single entry is contiguous
    sizes = list(scores.shape)
    padded = [1] * (len(sizes) - alpha.dim()) + list(alpha.shape)
    del sizes[dim], padded[dim]  # where α has size 1
    varying = [i for i, size in enumerate(padded) if size > 1]
    first, last = varying[0], varying[-1]
    if padded[first : last + 1] != sizes[first : last + 1]:
        alpha = alpha.reshape(padded).expand(sizes)
        last = len(sizes) - 1
    return alpha.reshape(-1).contiguous(), math.prod(sizes[last + 1 :])


def _is_last(dim: int, tensor: Tensor) -> bool:
    return dim == -1 or dim == tensor.dim() - 1


def gradient_of_alpha(per_row: Tensor, alpha: Tensor, like: Tensor, dim: int) -> Tensor:
    """Sum per-row gradients of α, (rows,), to α's shape and dtype."""
    if like.dim() > 0:
        per_row = per_row.view(like.movedim(dim, -1).shape[:-1]).unsqueeze(dim)
    return per_row.sum_to_size(alpha.shape).to(alpha.dtype)
