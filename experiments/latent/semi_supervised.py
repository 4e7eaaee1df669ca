"""A semi-supervised variational autoencoder: few of scikit-learn's digits have labels, others are summed out.

    OMP_NUM_THREADS=1 python -m experiments.latent.semi_supervised experiments/latent/semi_supervised.yaml

For a picture x without label, the class y is latent: the loss is Σ_y q(y | x) (−ELBO(x, y)) − H(q(y | x)).
The remaining variation of a picture is a Gaussian latent variable, reparametrised. Runs with a record are
skipped.
Source: Correia et al. 2020 (https://arxiv.org/abs/2007.01919), section 5.1, and Kingma et al. 2014
(https://arxiv.org/abs/1406.5298), model M2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from user_dir.latent import Categories

from . import _systems as systems
from ._runs import run
from ._systems import CLASSES, GREY_LEVELS, PIXELS, Estimator, embed, network


class Autoencoder(nn.Module):
    """A classifier, and an encoder and a decoder that know the class."""

    def __init__(self, settings: dict):
        super().__init__()
        hidden, self.size = settings["hidden"], settings["gaussian"]
        self.classifier = network(PIXELS, hidden, CLASSES)
        self.encoder = network(PIXELS + CLASSES, hidden, 2 * self.size)
        self.decoder = network(self.size + CLASSES, hidden, PIXELS * GREY_LEVELS)
        self.register_buffer("one_hot", torch.eye(CLASSES))

    def scores(self, pictures: Tensor) -> Tensor:
        """Scores (B, 10) of the classes."""
        return self.classifier(pictures / (GREY_LEVELS - 1))

    def negative_elbo(self, classes: Tensor, pictures: Tensor, noise: Tensor) -> Tensor:
        """−ELBO(x, y) in nats (N,) for classes (N,), or relaxed ones (N, 10), and pictures (N, 64)."""
        classes = embed(classes, self.one_hot)
        encoded = self.encoder(torch.cat((pictures / (GREY_LEVELS - 1), classes), dim=1))
        mean, log_variance = encoded.chunk(2, dim=1)
        code = mean + (log_variance / 2).exp() * noise
        divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum(1) / 2
        reconstruction = systems.pixel_losses(self.decoder(torch.cat((code, classes), dim=1)), pictures)
        return reconstruction + divergence + math.log(CLASSES)


@torch.no_grad()
def accuracy(model: Autoencoder, pictures: Tensor, classes: Tensor) -> float:
    """The share of pictures whose class is the most probable one."""
    return (model.scores(pictures).argmax(1) == classes).float().mean().item()


def labelled(classes: Tensor, number: int, source: torch.Generator) -> Tensor:
    """The indices of ``number`` pictures, equally many of each class."""
    order = torch.randperm(len(classes), generator=source)
    of_class = [order[classes[order] == each][: number // CLASSES] for each in range(CLASSES)]
    return torch.cat(of_class)


def train(settings: dict, system: dict, learning_rate: float, seed: int) -> dict:
    """Fit the model; see :func:`._runs.main`."""
    parts = systems.digits()
    source = systems.generator(seed)
    model = Autoencoder(settings)
    pictures, classes = parts["train"]
    known = labelled(classes, settings["labels"], source)
    unknown = torch.ones(len(classes), dtype=torch.bool).index_fill(0, known, False).nonzero().squeeze(1)
    epochs, warm_up, batch_size = settings["epochs"], settings["supervised_epochs"], settings["batch"]
    updates = (epochs - warm_up) * math.ceil(len(unknown) / batch_size)
    estimator = Estimator(system, PIXELS, Categories, updates // 2)
    optimiser = torch.optim.Adam([*model.parameters(), *estimator.parameters()], lr=learning_rate)

    def supervised() -> Tensor:
        chosen = known[torch.randint(len(known), (batch_size,), generator=source)]
        x, y = pictures[chosen], classes[chosen]
        noise = torch.randn(batch_size, model.size)
        weight = settings["classification_weight"]
        return (
            model.negative_elbo(y, x, noise) + weight * functional.cross_entropy(model.scores(x), y)
        ).mean()

    curve = []
    for epoch in range(1, epochs + 1):
        sums = torch.zeros(3, dtype=torch.float64)
        for batch in unknown[torch.randperm(len(unknown), generator=source)].split(batch_size):
            objective = supervised()
            if epoch > warm_up:
                x = pictures[batch]
                noise = torch.randn(len(batch), model.size)
                losses, entropy, calls = estimator(
                    model.negative_elbo, model.scores(x), x / GREY_LEVELS, x, noise
                )
                value = (losses - entropy).mean()
                objective = objective + value
                estimator.updates += 1
                sums += torch.tensor([systems.bits_per_pixel(value), calls, 1.0])
            optimiser.zero_grad()
            objective.backward()
            optimiser.step()
        if epoch > warm_up and epoch % settings["report"] == 0:
            loss, calls = (sums[:2] / sums[2]).tolist()
            validation = accuracy(model, *parts["valid"])
            curve.append({"epoch": epoch, "loss": loss, "calls": calls, "accuracy": validation})
    return {
        "validation": 1 - accuracy(model, *parts["valid"]),
        "test": {"accuracy": accuracy(model, *parts["test"])},
        "calls": curve[-1]["calls"],
        "curve": curve,
    }


if __name__ == "__main__":
    run(__doc__, train)
