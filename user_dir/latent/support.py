"""A sparse distribution, stored as the choices of nonzero probability; and exact sums over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LossFunction = Callable[..., Tensor]


@dataclass(frozen=True)
class Support:
    """The choices of nonzero probability of all B examples of a batch, as N pairs (example, choice).

    Attributes:
        choices: (N,), the index of each choice; or (N, D), each choice as a vector of 0 and 1.
        weights: (N,), the probability of each choice, above 0; differentiable in the scores.
        batch: (N,), the example that each pair belongs to, in ascending order.
        certified: (B,), whether the distribution is proven to be the one over all choices. False where a
            top-k distribution may have left out a choice, or an active set was stopped early.
    """

    choices: Tensor
    weights: Tensor
    batch: Tensor
    certified: Tensor

    @classmethod
    def of(cls, choices: Tensor, weights: Tensor, certified: Tensor | None = None) -> Support:
        """Keep the candidates of each example whose weight exceeds 0.

        Args:
            choices: (B, K) indices or (B, K, D) vectors.
            weights: (B, K).
            certified: (B,), by default all.
        """
        if certified is None:
            certified = torch.ones(len(weights), dtype=torch.bool, device=weights.device)
        batch, candidate = (weights > 0).nonzero(as_tuple=True)
        return cls(choices[batch, candidate], weights[batch, candidate], batch, certified)

    def __len__(self) -> int:
        """The number of examples, B."""
        return self.certified.numel()

    def counts(self) -> Tensor:
        """(B,), how many choices each example has."""
        return torch.bincount(self.batch, minlength=len(self))

    def expectation(self, values: Tensor) -> Tensor:
        """Σ π(z) values(z) for each example: (N, …) to (B, …).

        The values may be integers or booleans. The result has the dtype that the weights and the values
        promote to, which is floating; if that is half precision, the sum is taken in float32.
        """
        dtype = torch.promote_types(self.weights.dtype, values.dtype)
        # In half precision, a sum of many small terms would stop growing.
        working = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        weights = self.weights.to(working).view(-1, *(1,) * (values.dim() - 1))
        total = torch.zeros(len(self), *values.shape[1:], dtype=working, device=values.device)
        return total.index_add(0, self.batch, weights * values.to(working)).to(dtype)

    def entropy(self) -> Tensor:
        """(B,), the Shannon entropy −Σ π(z) log π(z) in nats."""
        return self.expectation(-self.weights.log())


def marginalise(loss_function: LossFunction, support: Support, *inputs: Tensor) -> Tensor:
    """Σ π(z) loss(z) for each example; the loss function is called once, on all pairs with π(z) > 0.

    Args:
        loss_function: called with the choices of the N pairs, (N,) or (N, D), and the inputs of the example
            of each pair, (N, …); returns the losses (N,), which may be integers or booleans.
        support: the distributions of B examples.
        inputs: tensors (B, …).

    Returns:
        (B,), in the dtype that the weights and the losses promote to; differentiable in the weights of the
        support and in what the losses depend on.

    Raises:
        ValueError: an input does not have B entries, or the loss function does not return (N,).

    Source: Correia et al. 2020 (https://arxiv.org/abs/2007.01919), equation 3.
    """
    check_inputs(inputs, len(support))
    # Unlike indexing, index_select has a fast backward on a CPU.
    gathered = [tensor.index_select(0, support.batch) for tensor in inputs]
    losses = loss_function(support.choices, *gathered)
    if losses.shape != support.weights.shape:
        pairs, shape = support.weights.numel(), tuple(losses.shape)
        raise ValueError(f"the loss function must return one loss for each of the {pairs} pairs, not {shape}")
    return support.expectation(losses)


def check_scores(scores: Tensor, finite: bool = False) -> None:
    """Raise ValueError unless scores are a floating (B, n) with n ≥ 1, without NaN or +∞.

    A score of −∞ excludes a choice, but every example must keep one; with ``finite``, no score may be −∞.
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
    if not isinstance(budget, int) or not 0 <= budget <= size:
        raise ValueError(f"the budget must be an integer between 0 and the {size} bits, not {budget}")


def check_inputs(inputs: Sequence[Tensor], examples: int) -> None:
    """Raise ValueError unless the inputs of a loss function are (B, …) for B examples."""
    for number, tensor in enumerate(inputs):
        if tensor.shape[:1] != (examples,):
            shape = tuple(tensor.shape)
            raise ValueError(
                f"input {number} has shape {shape}, but the distribution has {examples} examples"
            )
