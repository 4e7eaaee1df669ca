"""Distributions with full support, for the estimators that sparse sums are compared with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..entmax.reference import working_dtype
from .score_checks import check_scores
from .support import Support

_MAX_BITS = 16


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
        # Not entr of the probabilities: its slope is infinite where one underflows to 0.
        finite = self.log_probabilities.clamp(min=torch.finfo(self.log_probabilities.dtype).min)
        return -(self.log_probabilities.exp() * finite).sum(1).to(self.scores.dtype)

    def everything(self) -> Support:
        """All n choices of every example, with their probabilities."""
        ids = torch.arange(self.scores.size(1), device=self.scores.device).expand_as(self.scores)
        return Support.of(ids, self.log_probabilities.exp().to(self.scores.dtype), _all_true(self.scores))

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
        if size > _MAX_BITS:
            raise ValueError(f"a dense sum over {size} bits has 2^{size} terms; at most {_MAX_BITS} bits")
        digits = torch.arange(size, device=self.scores.device)
        vectors = (torch.arange(2**size, device=self.scores.device).unsqueeze(1) >> digits & 1).to(
            self.scores
        )
        log_probabilities = -functional.softplus((1 - 2 * vectors) * _working(self.scores).unsqueeze(1)).sum(
            2
        )
        weights = log_probabilities.exp().to(self.scores.dtype)
        return Support.of(vectors.expand(batch, -1, -1), weights, _all_true(self.scores))

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


def _all_true(scores: Tensor) -> Tensor:
    return torch.ones(scores.size(0), dtype=torch.bool, device=scores.device)
