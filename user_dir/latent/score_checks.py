"""Validation of scores and sizes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def check_scores(scores: Tensor, finite: bool = False) -> None:
    """Raise ValueError unless scores are a floating (B, n) with n ≥ 1, without NaN or +∞.

    A score of −∞ excludes a choice, but every example needs one that remains. If ``finite``, −∞ is
    refused too.
    """
    if not scores.is_floating_point():
        raise ValueError(f"scores must be of a floating dtype, not {scores.dtype}")
    if scores.dim() != 2 or scores.size(1) == 0:
        raise ValueError(f"scores must be (B, n) with n at least 1, not {tuple(scores.shape)}")
    forbidden = ~scores.isfinite() if finite else scores.isnan() | (scores == float("inf"))
    if bool(forbidden.any()):
        row, column = forbidden.nonzero()[0].tolist()
        raise ValueError(f"scores[{row}, {column}] is {scores[row, column].item()}")
    excluded = (scores == float("-inf")).all(1)
    if bool(excluded.any()):
        raise ValueError(f"scores[{int(excluded.nonzero()[0])}] are all -inf: no choice remains")


def check_k(k: int) -> None:
    """Raise ValueError unless the number of candidates is at least 1."""
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")


def check_budget(budget: int, size: int) -> None:
    """Raise ValueError unless a budget of bits is an integer in 0 … D."""
    if not isinstance(budget, int):
        raise ValueError(f"the budget must be an integer number of bits, not {budget!r}")
    if not 0 <= budget <= size:
        raise ValueError(f"the budget must be between 0 and the {size} bits, not {budget}")


def check_inputs(inputs: Sequence[Tensor], examples: int) -> None:
    """Raise ValueError unless the inputs of a loss function are (B, …) for B examples."""
    for number, each in enumerate(inputs):
        if each.dim() == 0 or each.size(0) != examples:
            raise ValueError(
                f"input {number} has shape {tuple(each.shape)}, but the distribution has {examples} examples"
            )
