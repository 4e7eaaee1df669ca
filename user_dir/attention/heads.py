"""What the fused kernels for CPU and GPU ask of the tensors of heads."""

from __future__ import annotations

from torch import Tensor


def is_per_head(alpha: Tensor, heads: int) -> bool:
    """Whether α is one number, or one for each head in the shape (H, 1, 1)."""
    return alpha.numel() == 1 or (alpha.numel() == heads and alpha.dim() >= 3 and alpha.size(-3) == heads)


def dense_rows(tensor: Tensor) -> Tensor:
    """With the entries of each row side by side: as projections are, so without a copy."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def empty_output(query: Tensor) -> Tensor:
    """(B, H, T, D) in the memory order (T, B, H, D), as the output projection takes it."""
    batch, heads, queries, depth = query.shape
    return query.new_empty(queries, batch, heads, depth).permute(1, 2, 0, 3)


def gradient_of_alpha(per_head: Tensor, alpha: Tensor) -> Tensor:
    """What each head of each sentence adds to the gradient of α, (B, H), summed to α's shape and dtype."""
    return per_head[:, :, None, None].sum_to_size(alpha.shape).to(alpha.dtype)
