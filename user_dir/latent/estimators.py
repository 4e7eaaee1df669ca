"""Estimators of an expected loss and its gradient, which exact sparse sums are compared with.

Each takes the arguments of :func:`.support.marginalise`, with a distribution of full support
(:class:`Categories` or :class:`Bits`), and returns a tensor (B,): its value estimates the expected loss, and
its gradient that of the expected loss. ℓ is the loss of a choice z, and sg(·) a value without gradient.

Each raises ValueError if an input does not have B entries, or the losses or a given baseline are not (B,).
"""

from __future__ import annotations

from typing import Union

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..entmax.reference import working_dtype
from .support import LossFunction, Support, check_inputs, check_scores, marginalise


class Categories:
    """Softmax over n choices, given scores (B, n); a choice is an index."""

    def __init__(self, scores: Tensor):
        check_scores(scores)
        self.scores = scores
        self.log_probabilities = _working(scores).log_softmax(1)

    def sample(self) -> Tensor:
        """(B,) indices."""
        return torch.multinomial(self.log_probabilities.detach().exp(), 1).squeeze(1)

    def log_prob(self, choices: Tensor) -> Tensor:
        """(B,), the log-probability of one choice (B,) per example."""
        return self.log_probabilities.gather(1, choices.unsqueeze(1)).squeeze(1).to(self.scores.dtype)

    def entropy(self) -> Tensor:
        """(B,), in nats."""
        # torch.special.entr would have an infinite slope where a probability underflows to 0.
        finite = self.log_probabilities.clamp(min=torch.finfo(self.log_probabilities.dtype).min)
        return -(self.log_probabilities.exp() * finite).sum(1).to(self.scores.dtype)

    def everything(self) -> Support:
        """All n choices of every example, with their probabilities."""
        ids = torch.arange(self.scores.size(1), device=self.scores.device).expand_as(self.scores)
        return Support.of(ids, self.log_probabilities.exp().to(self.scores.dtype))

    def relaxed(self, temperature: float) -> Tensor:
        """Gumbel-softmax samples (B, n), near one-hot vectors (Jang et al. 2017, equation 2)."""
        scores = _working(self.scores)
        gumbel = -torch.empty_like(scores).exponential_().log()
        return ((scores + gumbel) / temperature).softmax(1).to(self.scores.dtype)

    def hardened(self, relaxed: Tensor) -> Tensor:
        """The one-hot vectors (B, n) of the samples that :meth:`relaxed` gave."""
        return functional.one_hot(relaxed.argmax(1), self.scores.size(1)).to(relaxed.dtype)


class Bits:
    """D independent bits, given their log-odds as scores (B, D); a choice is a vector of 0 and 1."""

    def __init__(self, scores: Tensor):
        check_scores(scores, finite=True)
        self.scores = scores

    def sample(self) -> Tensor:
        """(B, D) of 0 and 1."""
        return torch.bernoulli(_working(self.scores.detach()).sigmoid()).to(self.scores.dtype)

    def log_prob(self, choices: Tensor) -> Tensor:
        """(B,), the log-probability of one vector (B, D) per example."""
        return -functional.softplus((1 - 2 * choices) * _working(self.scores)).sum(1).to(self.scores.dtype)

    def entropy(self) -> Tensor:
        """(B,), in nats."""
        scores = _working(self.scores)
        return (functional.softplus(scores) - scores * scores.sigmoid()).sum(1).to(self.scores.dtype)

    def everything(self) -> Support:
        """All 2^D vectors of every example, with their probabilities; raises ValueError if D > 16."""
        batch, size = self.scores.shape
        if size > 16:
            raise ValueError(f"a dense sum over {size} bits has 2^{size} terms; at most 16 bits")
        digits = torch.arange(size, device=self.scores.device)
        numbers = torch.arange(2**size, device=self.scores.device).unsqueeze(1)
        vectors = (numbers >> digits & 1).to(self.scores)
        odds = (1 - 2 * vectors) * _working(self.scores).unsqueeze(1)
        log_probabilities = -functional.softplus(odds).sum(2)
        weights = log_probabilities.exp().to(self.scores.dtype)
        return Support.of(vectors.expand(batch, -1, -1), weights)

    def relaxed(self, temperature: float) -> Tensor:
        """Samples (B, D) between 0 and 1: the binary Gumbel-softmax (Maddison et al. 2017, appendix B)."""
        scores = _working(self.scores)
        uniform = torch.empty_like(scores).uniform_(1e-7, 1 - 1e-7)
        return ((scores + uniform.logit()) / temperature).sigmoid().to(self.scores.dtype)

    def hardened(self, relaxed: Tensor) -> Tensor:
        """The samples that :meth:`relaxed` gave, rounded to 0 and 1."""
        return (relaxed > 0.5).to(relaxed.dtype)


def _working(scores: Tensor) -> Tensor:
    """The scores in the dtype to compute in: half precision in float32."""
    return scores.to(working_dtype(scores.dtype))


Family = Union[Categories, Bits]


def dense(loss_function: LossFunction, family: Family, *inputs: Tensor) -> Tensor:
    """The sum over all choices: exact, at the cost of a loss for each of them."""
    return marginalise(loss_function, family.everything(), *inputs)


class RunningMean(nn.Module):
    """A baseline: the mean of the losses of past batches, forgetting exponentially; 0 before the first."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.seen: Tensor
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))

    def update(self, losses: Tensor) -> None:
        """Include the losses of a batch; an empty one has no mean, and changes nothing."""
        if losses.numel() == 0:
            return
        mean = losses.detach().mean()
        self.mean = torch.where(self.seen, 0.9 * self.mean + (1 - 0.9) * mean, mean)
        self.seen = torch.ones_like(self.seen)


def sfe(loss_function: LossFunction, family: Family, *inputs: Tensor, baseline: RunningMean) -> Tensor:
    """Score function estimator (REINFORCE): ℓ + sg(ℓ − b) log π(z), with a running mean b. Unbiased.

    Source: Williams 1992 (https://doi.org/10.1007/BF00992696).
    """
    choices = family.sample()
    losses = _losses(loss_function, family, choices, inputs)
    estimate = _with_score(losses, baseline.mean.to(losses), family.log_prob(choices))
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
    error = (baseline - losses).detach() * _gradient_only(2 * baseline)
    return _with_score(losses, baseline.detach(), family.log_prob(choices)) + error


def gumbel(
    loss_function: LossFunction, family: Family, *inputs: Tensor,
    temperature: float, straight_through: bool = False,
) -> Tensor:  # fmt: skip
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


def _losses(loss_function: LossFunction, family: Family, choices: Tensor, inputs: tuple) -> Tensor:
    """The losses (B,) of one choice per example, in the dtype that the scores and the losses promote to."""
    check_inputs(inputs, len(family.scores))
    losses = loss_function(choices, *inputs)
    _check_shape("what the loss function returns", losses, family)
    return losses.to(torch.promote_types(family.scores.dtype, losses.dtype))


def _check_shape(name: str, values: Tensor, family: Family) -> None:
    """Raise ValueError unless there is one value for each example; others would be broadcast."""
    if values.shape != family.scores.shape[:1]:
        examples, shape = len(family.scores), tuple(values.shape)
        raise ValueError(f"{name} must have one value for each of {examples} examples, not shape {shape}")


def _with_score(losses: Tensor, baseline: Tensor, log_probability: Tensor) -> Tensor:
    return losses + (losses.detach() - baseline) * _gradient_only(log_probability)


def _gradient_only(values: Tensor) -> Tensor:
    """Zeros with the gradient of ``values``."""
    return values - values.detach()
