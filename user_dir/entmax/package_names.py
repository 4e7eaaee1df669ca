"""The names of the entmax package (https://github.com/deep-spin/entmax), computed by our kernels.

Arguments and shapes are those of the package; ``k``, ``n_iter`` and ``ensure_sum_one``, which steer its
solvers, have no effect; α is at least 1. The loss of an ignored target is 0, and ``elementwise_mean``
averages over the others.
"""

from __future__ import annotations

from torch import Tensor, nn

from .loss import entmax_loss
from .op import entmax

MEAN = "elementwise_mean"


def sparsemax(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """α-entmax with α = 2."""
    return entmax(X, 2.0, dim)


def entmax15(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """α-entmax with α = 1.5."""
    return entmax(X, 1.5, dim)


def entmax_bisect(
    X: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True
) -> Tensor:
    """α-entmax; an ``alpha`` tensor broadcasts against ``X`` with size 1 at ``dim``."""
    return entmax(X, alpha, dim)


def sparsemax_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """The α-entmax loss with α = 2 of each target (N,), for scores (N, V)."""
    return entmax_loss(X, target, 2.0)


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """The α-entmax loss with α = 1.5 of each target (N,), for scores (N, V)."""
    return entmax_loss(X, target, 1.5)


def entmax_bisect_loss(X: Tensor, target: Tensor, alpha: float = 1.5, n_iter: int = 50) -> Tensor:
    """The α-entmax loss, α from 1 to 2, of each target (N,), for scores (N, V)."""
    return entmax_loss(X, target, alpha)


class EntmaxBisect(nn.Module):
    """:func:`entmax_bisect` as a module."""

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__()
        self.alpha, self.dim = alpha, dim

    def forward(self, X: Tensor) -> Tensor:
        """The weights of scores ``X``."""
        return entmax(X, self.alpha, self.dim)


class Sparsemax(EntmaxBisect):
    """:func:`sparsemax` as a module."""

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__(2.0, dim)


class Entmax15(EntmaxBisect):
    """:func:`entmax15` as a module."""

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__(1.5, dim)


class SparsemaxLoss(nn.Module):
    """:func:`sparsemax_loss` as a module; ``reduction`` is elementwise_mean, sum or none."""

    alpha = 2.0

    def __init__(self, k: int | None = None, ignore_index: int = -100, reduction: str = MEAN) -> None:
        super().__init__()
        if reduction not in (MEAN, "sum", "none"):
            raise ValueError(f"reduction must be {MEAN}, sum or none, not {reduction}")
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, X: Tensor, target: Tensor) -> Tensor:
        """The loss of targets (N,) for scores ``X`` (N, V)."""
        losses = entmax_loss(X, target, self.alpha, ignore_index=self.ignore_index)
        if self.reduction == MEAN:
            return losses.sum() / (target != self.ignore_index).sum()
        return losses.sum() if self.reduction == "sum" else losses


class Entmax15Loss(SparsemaxLoss):
    """:func:`entmax15_loss` as a module; arguments are those of :class:`SparsemaxLoss`."""

    alpha = 1.5


class EntmaxBisectLoss(SparsemaxLoss):
    """:func:`entmax_bisect_loss` as a module; the other arguments are those of :class:`SparsemaxLoss`."""

    def __init__(
        self, alpha: float = 1.5, n_iter: int = 50, ignore_index: int = -100, reduction: str = MEAN
    ) -> None:
        super().__init__(None, ignore_index, reduction)
        self.alpha = alpha
