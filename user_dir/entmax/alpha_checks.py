"""Validation of α and of the dimension."""

from __future__ import annotations

import math

from torch import Tensor


def check_dim(dim: int, scores: Tensor) -> None:
    """Raise ValueError unless the scores have this dimension; a single score has one, as in torch."""
    if not -max(scores.dim(), 1) <= dim < max(scores.dim(), 1):
        raise ValueError(f"dim {dim} is out of range for scores of shape {tuple(scores.shape)}")


def check_shape(alpha: Tensor, scores: Tensor, dim: int) -> None:
    """Raise ValueError unless α broadcasts against the scores with size 1 at ``dim``, which they have."""
    padded = (1,) * (scores.dim() - alpha.dim()) + tuple(alpha.shape)
    fits = len(padded) == scores.dim() and all(a in (1, s) for a, s in zip(padded, scores.shape))
    if not fits or (padded and padded[dim] != 1):
        raise ValueError(
            f"alpha of shape {tuple(alpha.shape)} must broadcast against scores of shape "
            f"{tuple(scores.shape)} with size 1 at dim {dim}; for one value per head of scores "
            "(B, H, T, S), pass alpha.view(-1, 1, 1)"
        )


def check_number(alpha: float) -> None:
    """Raise ValueError if α is below 1, infinite or NaN."""
    if not 1 <= alpha < math.inf:
        raise ValueError(f"alpha must be at least 1 and finite, not {alpha}")


def check_range(alpha: Tensor) -> None:
    """Raise ValueError if some α is below 1, infinite or NaN."""
    valid = (alpha >= 1) & (alpha < math.inf)
    if not bool(valid.all()):
        value = alpha[~valid].flatten()[0].item()
        raise ValueError(f"alpha must be at least 1 and finite, not {value:g}")


def check_targets(target: Tensor, size: int, ignore_index: int) -> None:
    """Raise ValueError, on a CPU, if a target is neither from 0 to size − 1 nor ``ignore_index``.

    On a GPU, the kernel of the loss gives such rows NaN.
    """
    if target.device.type != "cpu":  # looking at them would synchronise with the device
        return
    target = target.long()  # narrow integers would wrap the numbers that they are compared with
    wrong = ((target < 0) | (target >= size)) & (target != ignore_index)
    if bool(wrong.any()):
        value = target[wrong].flatten()[0].item()
        raise ValueError(f"a target must be from 0 to {size - 1} or {ignore_index}, not {value}")
