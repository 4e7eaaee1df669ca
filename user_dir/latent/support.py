"""A sparse distribution, stored as the choices that have a nonzero probability."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
    def of(cls, choices: Tensor, weights: Tensor, certified: Tensor) -> Support:
        """Keep the candidates of each example whose weight exceeds 0.

        Args:
            choices: (B, K) indices or (B, K, D) vectors.
            weights: (B, K).
            certified: (B,).
        """
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
