"""The systems that are compared: one interface for exact sums and for estimators."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from user_dir import latent
from user_dir.errors import UserError

SPARSE = {
    "sparsemax": latent.sparsemax,
    "topk_sparsemax": latent.topk_sparsemax,
    "topk_sparsemax_bits": latent.topk_sparsemax_bits,
    "sparsemap_bits": latent.sparsemap_bits,
}
SAMPLED = ("dense", "sfe", "sfe_plus", "nvil", "gumbel", "straight_through")


class Estimator(nn.Module):
    """E_π[loss] for each example and the entropy of π, as the settings of a system say.

    Args:
        settings: ``method`` is a function of ``user_dir.latent``; the other settings are its arguments.
        context: the size of what NVIL's baseline sees of an example.
        family: the distribution of the estimators that sample.
        anneal: the update at which the temperature of Gumbel-softmax reaches its minimum of 0.5.
    """

    def __init__(self, settings: dict, context: int, family: type, anneal: int):
        super().__init__()
        settings = dict(settings)
        self.method = settings.pop("method", None)
        if self.method not in (*SPARSE, *SAMPLED):
            raise UserError(f"unknown method {self.method!r}: choose from {', '.join((*SPARSE, *SAMPLED))}")
        self.arguments, self.family, self.anneal = settings, family, anneal
        self.updates = 0
        self.running_mean = latent.RunningMean()
        self.baseline: nn.Module | None = None
        if self.method == "nvil":
            self.baseline = nn.Sequential(
                nn.Linear(context, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)
            )

    @property
    def samples(self) -> bool:
        """Whether the losses depend on chance."""
        return self.method not in (*SPARSE, "dense")

    def without_relaxation(self) -> Estimator:
        """For evaluation: the same if it is a sum, else one that takes exact samples."""
        if not self.samples:
            return self
        return Estimator({"method": "sfe"}, 0, self.family, 1)

    def forward(self, loss_function, scores: Tensor, context: Tensor, *inputs: Tensor):
        """Losses (B,), entropies (B,), and for how many choices per example the loss function was called.

        Args:
            loss_function: see :func:`user_dir.latent.marginalise`.
            scores: (B, n) or (B, D).
            context: (B, C), what NVIL's baseline depends on.
        """
        calls = 0

        def counted(choices, *given):
            nonlocal calls
            calls += len(choices)
            return loss_function(choices, *given)

        if self.method in SPARSE:
            support = SPARSE[self.method](scores, **self.arguments)
            losses = latent.marginalise(counted, support, *inputs)
            return losses, support.entropy(), calls / len(scores)
        family = self.family(scores)
        losses = self._estimate(counted, family, context, *inputs)
        return losses, family.entropy(), calls / len(scores)

    def _estimate(self, loss_function, family, context: Tensor, *inputs: Tensor) -> Tensor:
        if self.method == "dense":
            return latent.dense(loss_function, family, *inputs)
        if self.method == "sfe":
            return latent.sfe(loss_function, family, *inputs, baseline=self.running_mean)
        if self.method == "sfe_plus":
            return latent.sfe_plus(loss_function, family, *inputs)
        if self.method == "nvil":
            baseline = self.baseline(context.detach()).squeeze(1)
            return latent.nvil(loss_function, family, *inputs, baseline=baseline)
        temperature = max(0.5, math.exp(math.log(0.5) * self.updates / self.anneal))
        return latent.gumbel(
            loss_function,
            family,
            *inputs,
            temperature=temperature,
            straight_through=self.method == "straight_through",
        )


def embed(choices: Tensor, weight: Tensor) -> Tensor:
    """The rows of ``weight`` (n, C) for indices (N,), or their mixture for relaxed choices (N, n)."""
    return choices @ weight if choices.is_floating_point() else weight.index_select(0, choices)


def network(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def bits_per_dimension(nats: Tensor, dimensions: int) -> Tensor:
    """Nats per example as bits per dimension."""
    return nats / (dimensions * math.log(2))


def generator(seed: int) -> torch.Generator:
    """A source of random numbers of its own, so that data do not depend on what a model draws."""
    return torch.Generator().manual_seed(seed)
