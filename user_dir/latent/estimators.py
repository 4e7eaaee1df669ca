"""Estimators of an expected loss and its gradient, which exact sparse sums are compared with.

Each takes the arguments of :func:`.marginal.marginalise`, with a distribution of full support
(:mod:`.families`), and returns a tensor (B,): its value estimates the expected loss, and its gradient that of
the expected loss. ℓ is the loss of a choice z, and sg(·) a value without gradient.

Each raises ValueError if an input does not have B entries, or the losses or a given baseline are not (B,).
"""

from __future__ import annotations

from typing import Union

import torch
from torch import Tensor, nn

from .families import Bits, Categories
from .marginal import LossFunction, marginalise
from .score_checks import check_inputs

Family = Union[Categories, Bits]


def dense(loss_function: LossFunction, family: Family, *inputs: Tensor) -> Tensor:
    """The sum over all choices: exact, at the cost of a loss for each of them."""
    return marginalise(loss_function, family.everything(), *inputs)


class RunningMean(nn.Module):
    """A baseline: the mean of the losses of past batches, forgetting exponentially; 0 before the first."""

    def __init__(self, momentum: float = 0.9):
        super().__init__()
        self.momentum = momentum
        self.mean: Tensor
        self.seen: Tensor
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))

    def forward(self) -> Tensor:
        """The mean so far, without gradient."""
        return self.mean

    def update(self, losses: Tensor) -> None:
        """Include the losses of a batch; an empty one has no mean, and changes nothing."""
        if losses.numel() == 0:
            return
        mean = losses.detach().mean()
        self.mean = torch.where(self.seen, self.momentum * self.mean + (1 - self.momentum) * mean, mean)
        self.seen = torch.ones_like(self.seen)


def sfe(loss_function: LossFunction, family: Family, *inputs: Tensor, baseline: RunningMean) -> Tensor:
    """Score function estimator (REINFORCE): ℓ + sg(ℓ − b) log π(z), with a running mean b. Unbiased.

    Source: Williams 1992 (https://doi.org/10.1007/BF00992696).
    """
    choices = family.sample()
    losses = _losses(loss_function, family, choices, inputs)
    estimate = _with_score(losses, baseline().to(losses), family.log_prob(choices))
    baseline.update(losses)
    return estimate


def sfe_plus(loss_function: LossFunction, family: Family, *inputs: Tensor) -> Tensor:
    """Score function estimator whose baseline is the loss of a second, independent sample. Unbiased.

    Source: Correia et al. 2020, section 5 (SFE+); the baseline is that of Kool et al. 2019.
    """
    choices = family.sample()
    losses = _losses(loss_function, family, choices, inputs)
    with torch.no_grad():
        baseline = _losses(loss_function, family, family.sample(), inputs)
    return _with_score(losses, baseline, family.log_prob(choices))


def nvil(loss_function: LossFunction, family: Family, *inputs: Tensor, baseline: Tensor) -> Tensor:
    """Score function estimator with a learned baseline b (B,), which is trained on (sg ℓ − b)². Unbiased.

    Source: Mnih & Gregor 2014 (https://arxiv.org/abs/1402.0030), section 2.3.
    """
    _check_shape("the baseline", baseline, family)
    choices = family.sample()
    losses = _losses(loss_function, family, choices, inputs)
    error = (losses.detach() - baseline).square()
    return _with_score(losses, baseline.detach(), family.log_prob(choices)) + _gradient_only(error)


def gumbel(
    loss_function: LossFunction,
    family: Family,
    *inputs: Tensor,
    temperature: float,
    straight_through: bool = False,
) -> Tensor:
    """The loss of a relaxed choice, whose gradient reaches the scores directly. Biased.

    The loss function gets vectors: (B, n) distributions over categories, (B, D) bits between 0 and 1. If
    ``straight_through``, they are rounded in the forward pass only.

    Source: Jang et al. 2017 (https://arxiv.org/abs/1611.01144); Maddison et al. 2017.
    """
    if not temperature > 0:
        raise ValueError(f"the temperature must be positive, not {temperature}")
    choices = family.relaxed(temperature)
    if straight_through:
        choices = family.hardened(choices.detach()) + _gradient_only(choices)
    return _losses(loss_function, family, choices, inputs)


def _losses(
    loss_function: LossFunction, family: Family, choices: Tensor, inputs: tuple[Tensor, ...]
) -> Tensor:
    """The losses (B,) of one choice per example, in the dtype that the scores and the losses promote to."""
    check_inputs(inputs, len(family.scores))
    losses = loss_function(choices, *inputs)
    _check_shape("what the loss function returns", losses, family)
    return losses.to(torch.promote_types(family.scores.dtype, losses.dtype))


def _check_shape(name: str, values: Tensor, family: Family) -> None:
    """Raise ValueError unless there is one value for each example; others would be broadcast."""
    if values.shape != family.scores.shape[:1]:
        raise ValueError(
            f"{name} must have one value for each of the {len(family.scores)} examples, not shape "
            f"{tuple(values.shape)}"
        )


def _with_score(losses: Tensor, baseline: Tensor, log_probability: Tensor) -> Tensor:
    return losses + _gradient_only((losses.detach() - baseline) * log_probability)


def _gradient_only(values: Tensor) -> Tensor:
    """Zeros with the gradient of ``values``."""
    return values - values.detach()
