"""A variational autoencoder with D latent bits, on scikit-learn's digits.

    OMP_NUM_THREADS=1 python -m experiments.latent.bit_vectors experiments/latent/bit_vectors.yaml

Minimises −ELBO = Σ_z q(z | x) (−log p(x | z)) − H(q) + D log 2 for a uniform prior of the bits. p(x | z) is a
categorical distribution over the 17 grey levels of each of the 64 pixels. Runs with a record are skipped.
Source: Correia et al. 2020 (https://arxiv.org/abs/2007.01919), section 5.3, with smaller pictures.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from user_dir.commands.options import run_command
from user_dir.latent import Bits

from .runs import main
from .systems import GREY_LEVELS, PIXELS, Estimator, bits_per_pixel, digits, generator, network, pixel_losses

FIGURE = ("negative_elbo", "−ELBO, bits per pixel", 1, ".3f")


class Autoencoder(nn.Module):
    """An encoder from pictures to scores of the bits, and a decoder from bits to pictures."""

    def __init__(self, settings: dict):
        super().__init__()
        bits, hidden = settings["bits"], settings["hidden"]
        self.bits = bits
        self.encoder = network(PIXELS, hidden, bits)
        self.decoder = network(bits, hidden, PIXELS * GREY_LEVELS)

    def scores(self, pictures: Tensor) -> Tensor:
        """Scores (B, D) of the bits of pictures (B, 64)."""
        return self.encoder(pictures / (GREY_LEVELS - 1))

    def loss(self, vectors: Tensor, pictures: Tensor) -> Tensor:
        """−log p(x | z) in nats (N,) for vectors of bits (N, D) and pictures (N, 64)."""
        return pixel_losses(self.decoder(2 * vectors - 1), pictures)

    def negative_elbo(self, estimator: Estimator, pictures: Tensor) -> tuple[Tensor, float]:
        """−ELBO (B,) in nats, and the decoder's calls per picture."""
        losses, entropy, calls = estimator(self.loss, self.scores(pictures), pictures / GREY_LEVELS, pictures)
        return losses - entropy + self.bits * math.log(2), calls


@torch.no_grad()
def evaluate(model: Autoencoder, estimator: Estimator, pictures: Tensor, samples: int) -> dict:
    """−ELBO in bits per pixel and calls per picture; the mean of several samples where it is estimated."""
    if estimator.samples:  # exact samples instead of relaxed ones
        estimator = Estimator({"method": "sfe"}, 0, Bits, 1)
    results = [model.negative_elbo(estimator, pictures) for _ in range(samples if estimator.samples else 1)]
    nats = torch.stack([nats for nats, _ in results])
    return {"negative_elbo": bits_per_pixel(nats), "calls": results[0][1]}


def train(settings: dict, system: dict, learning_rate: float, seed: int) -> dict:
    """Fit the autoencoder; see :func:`.runs.main`."""
    parts = digits()
    source = generator(seed)
    model = Autoencoder(settings)
    pictures = parts["train"]
    updates = settings["epochs"] * (len(pictures) // settings["batch"])
    estimator = Estimator(system, PIXELS, Bits, updates // 2)
    optimiser = torch.optim.Adam([*model.parameters(), *estimator.parameters()], lr=learning_rate)
    curve = []
    for epoch in range(1, settings["epochs"] + 1):
        sums = torch.zeros(3, dtype=torch.float64)
        for batch in torch.randperm(len(pictures), generator=source).split(settings["batch"]):
            if len(batch) < settings["batch"]:
                continue
            values, calls = model.negative_elbo(estimator, pictures[batch])
            optimiser.zero_grad()
            values.mean().backward()
            optimiser.step()
            estimator.updates += 1
            sums += torch.tensor([bits_per_pixel(values), calls, 1.0])
        if epoch % settings["report"] == 0:
            loss, calls = (sums[:2] / sums[2]).tolist()
            valid = evaluate(model, estimator, parts["valid"], settings["samples"])["negative_elbo"]
            curve.append({"epoch": epoch, "loss": loss, "calls": calls, "validation": valid})
    return {
        "validation": curve[-1]["validation"],
        "test": evaluate(model, estimator, parts["test"], settings["samples"]),
        "calls": curve[-1]["calls"],
        "curve": curve,
    }


if __name__ == "__main__":
    run_command(lambda: main(__doc__, train, FIGURE))
