"""Estimators of the systems that are compared, their networks, and scikit-learn's digits."""

from __future__ import annotations

import math

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from user_dir import latent

PIXELS, GREY_LEVELS = 64, 17
SIZES = {"train": 1197, "valid": 300, "test": 300}  # of the digits
SPARSE = ("sparsemax", "topk_sparsemax", "topk_sparsemax_bits", "sparsemap_bits")


class Estimator(nn.Module):
    """E_π[loss] for each example and the entropy of π, as the settings of a system say.

    Args:
        settings: ``method`` is a function of ``user_dir.latent``; the other settings are its arguments.
        context: the number of features of an example that NVIL's baseline reads.
        family: the distribution for estimators other than the sparse ones.
        anneal: the update at which the temperature of Gumbel-softmax reaches its minimum of 0.5.
    """

    def __init__(self, settings: dict, context: int, family: type, anneal: int):
        super().__init__()
        self.arguments, self.family, self.anneal = dict(settings), family, anneal
        self.method = self.arguments.pop("method")
        self.updates = 0
        self.running_mean = latent.RunningMean()
        self.baseline = network(context, 128, 128, 1) if self.method == "nvil" else None

    @property
    def samples(self) -> bool:
        """Whether the losses are random."""
        return self.method not in (*SPARSE, "dense")

    def forward(self, loss_function, scores: Tensor, context: Tensor, *inputs: Tensor):
        """Losses (B,), entropies (B,), and for how many choices per example the loss function was called.

        Args:
            loss_function: see :func:`user_dir.latent.marginalise`.
            scores: (B, n) or (B, D).
            context: (B, C), the input of NVIL's baseline.
        """
        calls = 0

        def counted(choices, *rows):
            nonlocal calls
            calls += len(choices)
            return loss_function(choices, *rows)

        if self.method in SPARSE:
            support = getattr(latent, self.method)(scores, **self.arguments)
            losses = latent.marginalise(counted, support, *inputs)
            return losses, support.entropy(), calls / len(scores)
        family, options = self.family(scores), {}
        method = "gumbel" if self.method == "straight_through" else self.method
        if method == "sfe":
            options["baseline"] = self.running_mean
        elif method == "nvil":
            options["baseline"] = self.baseline(context.detach()).squeeze(1)
        elif method == "gumbel":
            options["temperature"] = max(0.5, math.exp(math.log(0.5) * self.updates / self.anneal))
            options["straight_through"] = self.method == "straight_through"
        losses = getattr(latent, method)(counted, family, *inputs, **options)
        return losses, family.entropy(), calls / len(scores)


def network(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def generator(seed: int) -> torch.Generator:
    """A source of random numbers of its own, so that data do not depend on what a model draws."""
    return torch.Generator().manual_seed(seed)


def digits() -> dict[str, Tensor]:
    """Pictures (N, 64) with values 0 … 16 of each part; the division never changes."""
    loaded = load_digits()
    order = torch.randperm(len(loaded.target), generator=generator(0))
    pictures = torch.tensor(loaded.data, dtype=torch.float32)[order]
    return dict(zip(SIZES, pictures.split(list(SIZES.values()))))


def pixel_losses(logits: Tensor, pictures: Tensor) -> Tensor:
    """−log p(x) in nats (N,) for logits of the grey levels (N, 64 · 17) of pictures (N, 64)."""
    levels = pictures.reshape(-1).long()
    losses = functional.cross_entropy(logits.view(-1, GREY_LEVELS), levels, reduction="none")
    return losses.view(-1, PIXELS).sum(1)


def bits_per_pixel(nats: Tensor) -> float:
    """The mean over pictures of nats per picture, as bits per pixel."""
    return (nats.mean() / (PIXELS * math.log(2))).item()
