"""A signalling game: a sender names one of 200 concepts by one of 256 symbols, a receiver finds it among 16.

    OMP_NUM_THREADS=1 python -m experiments.latent.game experiments/latent/game.yaml

The symbol is a latent variable with the distribution π(z | concept). Sender and receiver minimise
Σ_z π(z) loss(z) − c H(π), where loss(z) is the cross entropy of the receiver's choice. Runs with a record are
skipped. Source: Correia et al. 2020 (https://arxiv.org/abs/2007.01919), section 5.2, but synthetic concepts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from user_dir.commands.options import run_command
from user_dir.latent import Categories

from .runs import main
from .systems import Estimator, generator, network

FIGURE = ("success", "success %", 100, ".1f")


class Game(nn.Module):
    """Sender and receiver."""

    def __init__(self, settings: dict):
        super().__init__()
        features, hidden, symbols = settings["features"], settings["hidden"], settings["symbols"]
        self.temperature = settings["temperature"]
        self.sender = network(features, settings["sender_hidden"], symbols)
        self.symbols = nn.Parameter(torch.randn(symbols, hidden) / hidden**0.5)
        self.receiver = nn.Linear(features, hidden)

    def scores(self, targets: Tensor) -> Tensor:
        """Scores (B, Z) of the symbols for the features of concepts (B, F)."""
        return self.sender(targets) / self.temperature

    def logits(self, symbols: Tensor, encoded: Tensor) -> Tensor:
        """The receiver's scores (N, V) of candidates (N, V, C), given symbols (N,) or, relaxed, (N, Z)."""
        sent = symbols @ self.symbols if symbols.is_floating_point() else self.symbols[symbols]
        return (encoded @ sent.unsqueeze(2)).squeeze(2)


def rounds(settings: dict, batch: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """The candidates (B, V), all different, and which of them is the target (B,)."""
    order = torch.rand(batch, settings["concepts"], generator=source).argsort(1)
    candidates = order[:, : settings["candidates"]]
    return candidates, torch.randint(settings["candidates"], (batch,), generator=source)


@torch.no_grad()
def success(game: Game, settings: dict, concepts: Tensor, seed: int) -> float:
    """The share of rounds in which the receiver finds the target by the sender's most probable symbol."""
    candidates, target = rounds(settings, settings["evaluation_rounds"], generator(seed))
    chosen = concepts[candidates.gather(1, target.unsqueeze(1)).squeeze(1)]
    symbols = game.scores(chosen).argmax(1)
    guess = game.logits(symbols, game.receiver(concepts[candidates])).argmax(1)
    return (guess == target).float().mean().item()


def train(settings: dict, system: dict, learning_rate: float, seed: int) -> dict:
    """Play and learn; see :func:`.runs.main`."""
    source = generator(seed)
    concepts = torch.randn(settings["concepts"], settings["features"], generator=generator(0))
    game = Game(settings)
    estimator = Estimator(system, settings["features"], Categories, settings["updates"] // 2)
    optimiser = torch.optim.Adam([*game.parameters(), *estimator.parameters()], lr=learning_rate)

    def loss(symbols: Tensor, encoded: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(game.logits(symbols, encoded), target, reduction="none")

    curve, sums = [], torch.zeros(2, dtype=torch.float64)
    for update in range(1, settings["updates"] + 1):
        candidates, target = rounds(settings, settings["batch"], source)
        chosen = concepts[candidates.gather(1, target.unsqueeze(1)).squeeze(1)]
        encoded = game.receiver(concepts[candidates])
        losses, entropy, calls = estimator(loss, game.scores(chosen), chosen, encoded, target)
        optimiser.zero_grad()
        (losses - settings["entropy"] * entropy).mean().backward()
        optimiser.step()
        estimator.updates += 1
        sums += torch.tensor([losses.mean().item(), calls])
        if update % settings["report"] == 0:
            mean, calls = (sums / settings["report"]).tolist()
            sums.zero_()
            rate = success(game, settings, concepts, seed=10_001)
            curve.append({"update": update, "loss": mean, "calls": calls, "success": rate})
    return {
        "validation": 1 - curve[-1]["success"],
        "test": {"success": success(game, settings, concepts, seed=10_002)},
        "calls": curve[-1]["calls"],
        "curve": curve,
    }


if __name__ == "__main__":
    run_command(lambda: main(__doc__, train, FIGURE))
