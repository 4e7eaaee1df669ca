"""SparseMAP: a sparse distribution over structures, given only an algorithm for the best one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..entmax.reference import working_dtype
from .support import Support, check_budget, check_scores

Oracle = Callable[[Tensor], Tensor]
"""From the scores of the parts of a structure to the best structure, a vector of 0 and 1 by part."""

_TOLERANCE = 1e-9
_ROUNDING = 1e-10  # weights up to this may be errors of an optimum found only to _TOLERANCE


def sparsemap(
    scores: Tensor, oracle: Oracle, unregularised: int = 0, max_iterations: int | None = None
) -> Support:
    """The distribution over structures that maximises Σ p(z) x·z − ½ ‖Σ p(z) z‖².

    It is found by an active set, one example at a time, in float64 and on the CPU, which is where most
    oracles run. The mean Σ p(z) z is unique, but several distributions may have it, of which one is returned.

    Args:
        scores: x (B, P), finite: the scores of the parts of a structure.
        oracle: from scores (P,) in float64 to the best structure, a vector (P,) of 0 and 1.
        unregularised: how many of the last parts, such as transitions, are left out of the norm.
        max_iterations: steps per example, by default 10 P + 100; an example that needs more is
            not certified.

    Returns:
        A support whose choices are (N, P) of 0 and 1, in the dtype of the scores. Its weights are
        differentiable in the scores, for the support found; none is 0 or mere rounding.

    Raises:
        ValueError: a score is not finite, or the oracle's answer is no structure or not the best one.

    Source: Niculae et al. 2018 (https://arxiv.org/abs/1802.04223), sections 3 and 4.
    """
    check_scores(scores, finite=True)
    parts = scores.size(1)
    if not 0 <= unregularised < parts:
        raise ValueError(f"unregularised must be between 0 and {parts - 1}, not {unregularised}")
    if max_iterations is None:
        max_iterations = 10 * parts + 100
    structures, weights, certified = [scores.new_zeros(0, parts)], [scores[:0, 0]], []
    for row in scores:
        active = _ActiveSet(row.detach().double().cpu(), oracle, parts - unregularised)
        certified.append(active.run(max_iterations))
        active.drop_rounding(scores.dtype)
        # p = Q s + constant on the support, for the scores s of its structures; the gradient is that of Q s.
        working = row.to(working_dtype(row.dtype))
        chosen = active.structures.to(working)
        moved = (chosen * working).sum(1)
        slope = (active.inverse[1:, 1:].to(working) * (moved - moved.detach())).sum(1)
        weights.append((active.weights.to(working) + slope).to(row.dtype))
        structures.append(chosen.to(row.dtype))
    counts = torch.tensor([len(chosen) for chosen in structures[1:]], dtype=torch.long)
    batch = torch.arange(len(scores)).repeat_interleave(counts).to(scores.device)
    proven = torch.tensor(certified, dtype=torch.bool, device=scores.device)
    return Support(torch.cat(structures), torch.cat(weights), batch, proven)


class _ActiveSet:
    """Structures S and their weights p, changed one structure at a time until p is optimal.

    ``inverse`` is that of [[0, 1ᵀ], [1, K]], with K the inner products of S: the system of the optimality
    conditions. It exists because S is kept affinely independent. The inverse without its first row and
    column is Q, the derivative of the weights by the structures' scores.
    """

    def __init__(self, scores: Tensor, oracle: Oracle, regularised: int):
        self.scores, self.oracle, self.regularised = scores, oracle, regularised
        self.tolerance = _TOLERANCE * (1 + float(scores.abs().max()))
        self._hold(self._best(scores).unsqueeze(0), scores.new_ones(1))

    def run(self, max_iterations: int) -> bool:
        """Move to the optimum; false if the iterations did not suffice."""
        for _ in range(max_iterations):
            threshold = self._optimise_weights()
            slope = self.scores.clone()
            slope[: self.regularised] -= self.weights @ self.structures[:, : self.regularised]
            best = self._best(slope)
            gain = float(slope @ best) - threshold
            if gain < -1e3 * self.tolerance:
                raise ValueError("the oracle's answer is not the best structure: it gave a better one before")
            if gain <= self.tolerance or bool((self.structures == best).all(1).any()):
                return True
            self._add(best)
        self._optimise_weights()
        return False

    def drop_rounding(self, dtype: torch.dtype) -> None:
        """Drop structures whose weight is a rounding error, as after ties, or rounds to 0 in ``dtype``."""
        while True:
            least, index = self.weights.min(0)
            if least > _ROUNDING and least.to(dtype) > 0:
                return
            self._drop(int(index))
            self._optimise_weights()

    def _hold(self, structures: Tensor, weights: Tensor) -> None:
        """Set S and p."""
        self.structures, self.weights = structures, weights
        shared = structures[:, : self.regularised]
        system = self.scores.new_ones(len(shared) + 1, len(shared) + 1)
        system[0, 0] = 0
        system[1:, 1:] = shared @ shared.T
        self.inverse = torch.linalg.inv(system)

    def _optimise_weights(self) -> float:
        """The best weights for S, dropping structures that would get a negative one; returns τ."""
        while True:
            solution = self.inverse @ _after_one(self.structures @ self.scores)
            wanted = solution[1:]
            falling = wanted <= 0
            if not bool(falling.any()):
                self.weights = wanted
                return float(solution[0])
            share = self.weights / (self.weights - wanted).clamp_min(1e-300)
            step, drop = torch.where(falling, share, float("inf")).min(0)
            self.weights = self.weights + step.clamp(0, 1) * (wanted - self.weights)
            self._drop(int(drop))

    def _add(self, structure: Tensor) -> None:
        """Take up a structure with weight 0; if S would become affinely dependent, replace one of S by it."""
        shared, new = self.structures[:, : self.regularised], structure[: self.regularised]
        products = _after_one(shared @ new)
        combination = self.inverse @ products
        weight = 0.0
        distance = float(new @ new - products @ combination)  # from S, squared
        if distance < 1e-9 * self.regularised:
            # Weight moves from the affine combination of S that equals the new structure to that structure.
            limits = torch.where(combination[1:] > 1e-9, self.weights / combination[1:], float("inf"))
            weight, drop = (value.item() for value in limits.min(0))
            self.weights = self.weights - weight * combination[1:]
            self._drop(int(drop))
        self._hold(
            torch.cat((self.structures, structure.unsqueeze(0))),
            torch.cat((self.weights, self.weights.new_tensor([weight]))),
        )

    def _drop(self, index: int) -> None:
        kept = torch.arange(len(self.weights), device=self.weights.device) != index
        self._hold(self.structures[kept], self.weights[kept])

    def _best(self, scores: Tensor) -> Tensor:
        """The oracle's answer; raises ValueError if it is no vector of 0 and 1."""
        answer = torch.as_tensor(self.oracle(scores)).to(scores)
        if answer.shape != scores.shape or not bool(((answer == 0) | (answer == 1)).all()):
            raise ValueError(
                f"the oracle must answer with {len(scores)} numbers 0 or 1, not {answer.tolist()}"
            )
        return answer


def _after_one(values: Tensor) -> Tensor:
    return torch.nn.functional.pad(values, (1, 0), value=1.0)


# ------------------------------------------------------------------------------------------ oracles


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
