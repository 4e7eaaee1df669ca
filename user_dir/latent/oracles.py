"""MAP oracles for SparseMAP: from the scores of the parts of a structure to the best structure.

A structure is a vector of 0 and 1 that says which parts it contains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .score_checks import check_budget

Oracle = Callable[[Tensor], Tensor]


def bits_oracle(scores: Tensor) -> Tensor:
    """The best vector of D bits, as [z; 1 − z] (2 D,) for the scores of ones and zeros (2 D,)."""
    ones, zeros = scores.chunk(2)
    bits = ones > zeros
    return torch.cat((bits, ~bits)).to(scores.dtype)


def budget_oracle(budget: int) -> Oracle:
    """An oracle as :func:`bits_oracle` for vectors of which at most ``budget`` bits are 1."""

    def best(scores: Tensor) -> Tensor:
        ones, zeros = scores.chunk(2)
        check_budget(budget, ones.numel())
        gain = ones - zeros
        bits = torch.zeros_like(gain, dtype=torch.bool)
        bits[gain.topk(budget).indices] = True
        bits &= gain > 0
        return torch.cat((bits, ~bits)).to(scores.dtype)

    return best


@dataclass(frozen=True)
class LinearChain:
    """The best sequence of states, by the Viterbi algorithm.

    Its parts are the states at each step (steps · states), followed by the transitions between neighbouring
    steps ((steps − 1) · states · states, from state i to state j). Only the states are regularised if
    ``transitions`` is passed to :func:`.sparsemap.sparsemap` as ``unregularised``.
    """

    steps: int
    states: int

    @property
    def transitions(self) -> int:
        """The number of parts that are transitions."""
        return (self.steps - 1) * self.states * self.states

    @property
    def parts(self) -> int:
        """The number of parts."""
        return self.steps * self.states + self.transitions

    def __call__(self, scores: Tensor) -> Tensor:
        """The best sequence (parts,) for scores (parts,); raises ValueError if their number is wrong."""
        if scores.shape != (self.parts,):
            raise ValueError(
                f"a chain of {self.steps} steps and {self.states} states has {self.parts} parts, "
                f"but the scores have shape {tuple(scores.shape)}"
            )
        unary, binary = scores.split((self.steps * self.states, self.transitions))
        unary = unary.view(self.steps, self.states)
        binary = binary.view(self.steps - 1, self.states, self.states)
        best, origins = unary[0], []
        for step in range(1, self.steps):
            best, origin = (best.unsqueeze(1) + binary[step - 1]).max(0)
            best = best + unary[step]
            origins.append(origin)
        path = [int(best.argmax())]
        for origin in reversed(origins):
            path.append(int(origin[path[-1]]))
        return self.structure(path[::-1])

    def structure(self, path: list[int], dtype: torch.dtype = torch.float64) -> Tensor:
        """The parts (parts,) of a sequence of states."""
        unary = torch.zeros(self.steps, self.states, dtype=dtype)
        binary = torch.zeros(self.steps - 1, self.states, self.states, dtype=dtype)
        for step, state in enumerate(path):
            unary[step, state] = 1
            if step:
                binary[step - 1, path[step - 1], state] = 1
        return torch.cat((unary.flatten(), binary.flatten()))
