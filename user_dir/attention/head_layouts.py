"""Layouts of per-head tensors and of α for the fused kernels."""

from __future__ import annotations

from torch import Tensor


def is_per_head(alpha: Tensor, heads: int) -> bool:
    """Whether an α tensor holds a single number, or one per head in the shape (H, 1, 1)."""
    return alpha.numel() == 1 or (alpha.numel() == heads and alpha.dim() >= 3 and alpha.size(-3) == heads)


def dense_rows(tensor: Tensor) -> Tensor:
    """The tensor with contiguous rows; the output of a projection is not copied."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def empty_output(query: Tensor) -> Tensor:
    """An empty output (T, B, H, D) for queries (B, H, T, D), in the memory order of the output projection."""
    batch, heads, queries, head_dim = query.shape
    return query.new_empty(queries, batch, heads, head_dim)


def in_heads(output: Tensor) -> Tensor:
    """An output (T, B, H, D) as (B, H, T, D).

    Outside of an autograd function, since the view that one returns cannot be modified in place.
    """
    return output.permute(1, 2, 0, 3)


def gradient_of_alpha(parts: Tensor, alpha: Tensor) -> Tensor:
    """Sum the gradients of α per sentence, head and perhaps tile, (B, H, …), to α's shape and dtype."""
    over = None if alpha.numel() == 1 else [dim for dim in range(parts.dim()) if dim != 1]
    return parts.sum(over).to(alpha.dtype).view(alpha.shape)
