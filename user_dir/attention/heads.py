"""Layout of the tensors of heads, and of α, for the fused kernels."""

from __future__ import annotations

from torch import Tensor


def is_per_head(alpha: Tensor, heads: int) -> bool:
    """Whether an α tensor holds one number, or one for each head in the shape (H, 1, 1)."""
    return alpha.numel() == 1 or (alpha.numel() == heads and alpha.dim() >= 3 and alpha.size(-3) == heads)


def dense_rows(tensor: Tensor) -> Tensor:
    """The tensor with contiguous rows; without a copy for what a projection gives."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def empty_output(query: Tensor) -> Tensor:
    """An output (B, H, T, D) in the memory order (T, B, H, D), which the output projection takes."""
    batch, heads, queries, head_dim = query.shape
    return query.new_empty(queries, batch, heads, head_dim).permute(1, 2, 0, 3)


def gradient_of_alpha(per_head: Tensor, alpha: Tensor) -> Tensor:
    """The share of each sentence's heads in the gradient of α, (B, H), summed to α's shape and dtype."""
    return per_head[:, :, None, None].sum_to_size(alpha.shape).to(alpha.dtype)
