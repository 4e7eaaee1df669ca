#!/usr/bin/env python3
"""Time, memory and accuracy of α-entmax and of its loss, beside torch's softmax and the entmax package.

    python benchmarks/kernels.py --threads 2

Contenders take turns in every round, in random order. Times are medians over rounds; multiples of the time
of softmax (or cross-entropy) are medians over rounds of the ratio within a round.
*per head*: α from 1.05 to 1.95 over the heads.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from measure import begin, new_parser, peak_memory, ratio, table, time_calls
from torch import Tensor

from user_dir.entmax import entmax, entmax_loss
from user_dir.files import write_json

PER_HEAD = "per head"
SHAPES = ("128x8x32x32", "32x8x128x128", "8x8x512x512")  # of scores (B, H, T, S)
SYMBOLS = (8_000, 32_000)  # of a vocabulary
VARIANCES = (1, 9)  # of scores
ALPHAS = (1.0, 1.001, 1.01, 1.1, 1.25, 1.5, 1.75, 2.0)  # of accuracy


@dataclass(frozen=True)
class Contender:
    """An implementation, and the α it is run with."""

    name: str
    alpha: float | str
    function: Callable[..., Tensor]  # of scores and α, or of scores and targets


def contenders() -> list[Contender]:
    """Ours and others of softmax, α-entmax and its special cases."""
    import entmax as package

    return [
        Contender("torch softmax", 1.0, lambda scores, alpha: torch.softmax(scores, -1)),
        Contender("entmax_bisect", PER_HEAD, package.entmax_bisect),
        Contender("entmax15", 1.5, lambda scores, alpha: package.entmax15(scores, dim=-1)),
        Contender("sparsemax", 2.0, lambda scores, alpha: package.sparsemax(scores, dim=-1)),
        *(Contender("ours", alpha, entmax) for alpha in (PER_HEAD, 1.5, 2.0)),
    ]


def losses() -> list[Contender]:
    """Cross-entropy, the losses of the entmax package, and ours."""
    import entmax as package

    ours = [Contender("ours", a, functools.partial(entmax_loss, alpha=a)) for a in (1.25, 1.5, 2.0)]
    return [
        Contender("torch cross_entropy", 1.0, functools.partial(F.cross_entropy, reduction="none")),
        Contender("entmax15_loss", 1.5, package.entmax15_loss),
        Contender("sparsemax_loss", 2.0, package.sparsemax_loss),
        *ours,
    ]


def calls_of(contender: Contender, scores: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    """Forward without autograd; with the gradient of the scores; with that of α, too, if it is learned."""
    alpha, leaf = contender.alpha, scores.detach().requires_grad_()
    if alpha == PER_HEAD:
        alpha = torch.linspace(1.05, 1.95, scores.size(1), device=scores.device).view(-1, 1, 1)

    def backward(alpha, *inputs):
        return torch.autograd.grad(contender.function(leaf, alpha), (leaf, *inputs), grad)

    calls = {
        "forward": lambda: torch.no_grad()(contender.function)(scores, alpha),
        "+ backward": lambda: backward(alpha),
    }
    if contender.alpha == PER_HEAD:
        learned = alpha.clone().requires_grad_()
        calls["+ dα"] = lambda: backward(learned, learned)
    return calls


def time_kernels(
    compared: list[Contender], shape: list[int], variance: float, rounds: int, seed: int, device: str
) -> list[dict]:
    """A row per contender and measure, on scores from N(0, variance); softmax must be the first contender."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(shape, generator=generator) * variance**0.5).to(device)
    grad = torch.randn(shape, generator=generator).to(device)
    calls = {
        (contender, measure): call
        for contender in compared
        for measure, call in calls_of(contender, scores, grad).items()
    }
    return timed(calls, rounds, seed, device, {"shape": shape, "variance": variance})


def time_losses(rows: int, symbols: int, variance: float, rounds: int, seed: int, device: str) -> list[dict]:
    """A row per loss: forward and backward of each, on rows of scores from N(0, variance)."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(rows, symbols, generator=generator) * variance**0.5).to(device).requires_grad_()
    target = torch.randint(symbols, (rows,), generator=generator).to(device)

    def call(contender: Contender) -> Tensor:
        return torch.autograd.grad(contender.function(scores, target).sum(), scores)[0]

    calls = {(contender, "+ backward"): functools.partial(call, contender) for contender in losses()}
    return timed(calls, rounds, seed, device, {"symbols": symbols, "variance": variance})


def timed(calls: dict, rounds: int, seed: int, device: str, where: dict) -> list[dict]:
    """Rows with seconds, multiples of the first contender's, and peak memory."""
    times = time_calls(calls, rounds, seed)
    (first, _), *_ = calls
    rows = []
    for (contender, measure), values in times.items():
        softmax = times[first, "forward" if measure == "forward" else "+ backward"]
        row = {**where, "implementation": contender.name, "alpha": contender.alpha, "measure": measure}
        row |= {"ms": 1e3 * statistics.median(values), "to_softmax": ratio(values, softmax)}
        rows.append({**row, "peak_mib": peak_memory(calls[contender, measure], device) / 2**20})
    return rows


def accuracy(count: int, variance: float, seed: int, device: str) -> list[dict]:
    """For each α, the largest error of a weight, and that of α's gradient relative to the largest gradient.

    The reference is our own α-entmax in float64, which tests compare with mpmath.
    """
    generator = torch.Generator().manual_seed(seed)
    scores, grad = (torch.randn(1, count, 1, 128, generator=generator).to(device) for _ in range(2))
    scores, rows = scores * variance**0.5, []
    for value in ALPHAS:
        alpha = torch.full((count, 1, 1), value, device=device)  # every row is a head
        exact = alpha.double().requires_grad_()
        truth = entmax(scores.double(), exact)
        slope = torch.autograd.grad(truth, exact, grad.double())[0]
        for contender in contenders():
            learned = contender.alpha == PER_HEAD
            if not learned and contender.alpha != value:
                continue
            argument = alpha.clone().requires_grad_() if learned else value
            weights = contender.function(scores, argument)
            row = {"implementation": contender.name, "given": contender.alpha, "alpha": value}
            row |= {"variance": variance, "weights": (weights - truth).abs().max().item()}
            if learned:
                error = torch.autograd.grad(weights, argument, grad)[0] - slope
                row["alpha_gradient"] = (error.abs().max() / slope.abs().max()).item()
            rows.append(row)
    return rows


def main() -> None:
    """Measure, print, and write what is known after each part."""
    parser = new_parser(__doc__, rounds=11)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="BxHxTxS", help="shapes of the scores")
    args = parser.parse_args()
    device, report = begin(args)
    count = 16 if args.quick else 512  # rows of scores, for accuracy and losses
    report.update(accuracy=[], kernels=[], losses=[])

    def done(part: str, title: str, rows: list[dict]) -> None:
        report[part] += rows
        write_json(args.output, report)
        print(f"{title}\n\n{table(rows)}\n", flush=True)

    for variance in VARIANCES:
        rows = accuracy(count, variance, args.seed, device)
        done("accuracy", f"largest errors; scores from N(0, {variance})", rows)
    for shape in args.shapes[:1] if args.quick else args.shapes:
        for variance in VARIANCES:
            sizes = [int(size) for size in shape.split("x")]
            rows = time_kernels(contenders(), sizes, variance, args.rounds, args.seed, device)
            done("kernels", f"scores {shape} from N(0, {variance})", rows)
    for symbols in SYMBOLS[:1] if args.quick else SYMBOLS:
        for variance in VARIANCES:
            rows = time_losses(count, symbols, variance, args.rounds, args.seed, device)
            done("losses", f"{count} rows of {symbols} scores from N(0, {variance})", rows)
    print(args.output)


if __name__ == "__main__":
    main()
