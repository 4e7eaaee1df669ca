"""Errors of each implementation in float32, because speed without accuracy is worthless."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..tables import Column, table
from .contenders import PER_HEAD, Contender

ALPHAS = (1.0, 1.001, 1.01, 1.1, 1.25, 1.5, 1.75, 2.0)
ROWS, LENGTH = 512, 128


def true_weights(scores: Tensor, alpha: Tensor) -> Tensor:
    """α-entmax along the last dimension in float64, by the ``entmax`` package's bisection of 200 steps."""
    from entmax import entmax_bisect

    scores, alpha = scores.double(), alpha.double()
    softmax = torch.softmax(scores, -1)
    if bool((alpha == 1).all()):
        return softmax
    return torch.where(alpha == 1, softmax, entmax_bisect(scores, alpha, n_iter=200))


def true_alpha_gradient(weights: Tensor, alpha: Tensor, grad: Tensor) -> Tensor:
    """Gradient of α per row in float64: Proposition 1 of Correia et al. 2019."""
    p, g, eps = weights.double(), grad.double(), alpha.double() - 1
    log_p = torch.where(p > 0, p.clamp_min(1e-300).log(), 0.0)
    w = torch.where(p > 0, p.clamp_min(1e-300) ** (1 - eps), 0.0)
    skewed, h = w / w.sum(-1, keepdim=True), -p * log_p
    safe = torch.where(eps == 0, 1.0, eps)
    above = (p - skewed) / safe**2 + (h - skewed * h.sum(-1, keepdim=True)) / safe
    at_one = (h * log_p - p * (h * log_p).sum(-1, keepdim=True)) / 2
    return (g * torch.where(eps == 0, at_one, above)).sum(-1, keepdim=True)


def accuracy(contenders: list[Contender], variance: float, seed: int, device: torch.device) -> list[dict]:
    """Errors of each implementation at each α it supports, over rows of 128 scores from N(0, variance).

    Returns:
        Rows with ``weights``, the largest error of a weight, and ``alpha_gradient``, that of a row's gradient
        of α, relative to the largest; None if α is not an argument, NaN if the implementation returns NaN.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(1, ROWS, 1, LENGTH, generator=generator).to(device) * variance**0.5
    grad = torch.randn(1, ROWS, 1, LENGTH, generator=generator).to(device)
    rows = []
    for value in ALPHAS:
        alpha = torch.full((ROWS, 1, 1), value, device=device)  # every row is a head
        truth = true_weights(scores, alpha)
        slope = true_alpha_gradient(truth, alpha, grad)
        for contender in contenders:
            if contender.alpha not in (PER_HEAD, value):
                continue
            learned = contender.alpha == PER_HEAD
            argument = alpha.clone().requires_grad_() if learned else value
            with contender.chosen():
                weights = contender.function(scores, argument)
                found = torch.autograd.grad(weights, argument, grad)[0] if learned else None
            rows.append(
                {
                    "variance": variance,
                    "implementation": contender.name,
                    "alpha_given": contender.alpha,
                    "alpha": value,
                    "weights": _greatest(weights - truth),
                    "alpha_gradient": _greatest(found - slope) / _greatest(slope) if learned else None,
                }
            )
    return rows


def accuracy_tables(rows: list[dict]) -> str:
    """The rows of :func:`accuracy` as Markdown: a table per kind of error and variance, a column per α."""
    columns = [Column(f"α = {alpha:g}", lambda cells, alpha=alpha: cells.get(alpha, "")) for alpha in ALPHAS]
    tables = []
    for what, title in (
        ("weights", "largest error of a weight"),
        ("alpha_gradient", "largest error of the gradient of α, relative to the largest such gradient"),
    ):
        for variance in sorted({row["variance"] for row in rows}):
            lines: dict[tuple, dict] = {}
            for row in rows:
                if row["variance"] == variance and row[what] is not None:
                    key = (row["implementation"], row["alpha_given"])
                    lines.setdefault(key, {})[row["alpha"]] = f"{row[what]:.1e}".replace("nan", "NaN")
            shown = table(["implementation", "α"], lines.items(), columns)
            tables.append(f"{title}, scores from N(0, {variance:g})\n\n{shown}")
    return "\n\n".join(tables)


def _greatest(error: Tensor) -> float:
    """The largest magnitude; NaN if there is any."""
    return math.nan if bool(error.isnan().any()) else float(error.detach().abs().max())
