#!/usr/bin/env python3
"""Time, memory and accuracy of α-entmax and of its loss, beside torch's softmax and the entmax package.

    python benchmarks/kernels.py --threads 2

Contenders take turns in every round, in random order; times are medians over rounds, multiples the medians of the
multiples within rounds. *per head*: α from 1.05 to 1.95 over the heads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from measure import begin, new_parser, peak_memory, quartiles, ratio, table, time_calls, write_report
from torch import Tensor

from user_dir.entmax import entmax, entmax_loss

PER_HEAD = "per head"
SHAPES = ("128x8x32x32", "32x8x128x128", "8x8x512x512")  # of scores (B, H, T, S)
SYMBOLS = (8_000, 32_000)  # of a vocabulary
VARIANCES = (1, 9)  # of scores
MEASURES = ("forward", "+ backward", "+ dα")
ALPHAS = (1.0, 1.001, 1.01, 1.1, 1.25, 1.5, 1.75, 2.0)  # of accuracy


@dataclass(frozen=True)
class Contender:
    """An implementation, the α it is run with, and the one of the same α that it is compared with."""

    name: str
    alpha: float | str
    function: Callable[..., Tensor]  # of scores and α, or of scores and targets
    peer: str | None = None


def contenders() -> list[Contender]:
    """Ours and others of softmax, α-entmax and its special cases."""
    import entmax as package

    bisect = "entmax_bisect, 50 steps"
    found = [
        Contender("torch softmax", 1.0, lambda scores, alpha: torch.softmax(scores, -1)),
        Contender(bisect, PER_HEAD, package.entmax_bisect),  # its default
        Contender(
            "entmax_bisect, 25 steps", PER_HEAD, functools.partial(package.entmax_bisect, n_iter=25), bisect
        ),
        Contender("entmax15", 1.5, lambda scores, alpha: package.entmax15(scores, dim=-1)),
        Contender("sparsemax", 2.0, lambda scores, alpha: package.sparsemax(scores, dim=-1)),
    ]
    for alpha, peer in ((PER_HEAD, bisect), (1.5, "entmax15"), (2.0, "sparsemax")):
        found.append(Contender("ours", alpha, entmax, peer))
    return found


def losses() -> list[Contender]:
    """Cross-entropy, the losses of the entmax package, and ours."""
    import entmax as package

    return [
        Contender("torch cross_entropy", 1.0, functools.partial(F.cross_entropy, reduction="none")),
        Contender("entmax15_loss", 1.5, package.entmax15_loss),
        Contender("sparsemax_loss", 2.0, package.sparsemax_loss),
        *(
            Contender("ours", alpha, functools.partial(entmax_loss, alpha=alpha), peer)
            for alpha, peer in ((1.25, None), (1.5, "entmax15_loss"), (2.0, "sparsemax_loss"))
        ),
    ]


def calls_of(contender: Contender, scores: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    """Forward without autograd; with the gradient of the scores; also with the gradient of α, if it is learned."""
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


def time_kernels(shape: list[int], variance: float, rounds: int, seed: int, device: str) -> list[dict]:
    """A row per contender and measure: seconds, multiples of softmax's and of the peer's, peak memory."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(shape, generator=generator) * variance**0.5).to(device)
    grad = torch.randn(shape, generator=generator).to(device)
    calls = {
        (each, measure): call
        for each in contenders()
        for measure, call in calls_of(each, scores, grad).items()
    }
    times = time_calls(calls, rounds, seed)
    by_name = {(each.name, each.alpha, measure): values for (each, measure), values in times.items()}
    return [
        {
            "shape": shape,
            "variance": variance,
            "implementation": each.name,
            "alpha": each.alpha,
            "measure": measure,
            "seconds": quartiles(values),
            "to_softmax": ratio(
                values, by_name["torch softmax", 1.0, "forward" if measure == "forward" else "+ backward"]
            ),
            "to_peer": ratio(values, by_name[each.peer, each.alpha, measure]) if each.peer else None,
            "peak_bytes": peak_memory(calls[each, measure], device),
        }
        for (each, measure), values in times.items()
    ]


def kernel_table(rows: list[dict]) -> str:
    """The rows of :func:`time_kernels` as Markdown, a line per implementation."""
    lines: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        lines.setdefault((row["implementation"], row["alpha"]), {})[row["measure"]] = row
    cells = [
        [
            *name,
            *(
                value
                for row in (measured.get(measure) for measure in MEASURES)
                for value in (
                    [1e3 * row["seconds"]["median"], row["to_softmax"], row["to_peer"]] if row else [None] * 3
                )
            ),
            max(row["peak_bytes"] for row in measured.values()) / 2**20,
        ]
        for name, measured in lines.items()
    ]
    headers = [header for measure in MEASURES for header in (f"{measure}, ms", "×softmax", "×peer")]
    return table(cells, ["implementation", "α", *headers, "peak, MiB"])


def time_losses(
    targets: int, symbols: int, variance: float, rounds: int, seed: int, device: str
) -> list[dict]:
    """Forward and backward of each loss, on rows of scores from N(0, variance)."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(targets, symbols, generator=generator) * variance**0.5).to(device).requires_grad_()
    target = torch.randint(symbols, (targets,), generator=generator).to(device)

    def call(contender: Contender) -> Tensor:
        return torch.autograd.grad(contender.function(scores, target).sum(), scores)[0]

    calls = {each: functools.partial(call, each) for each in losses()}
    times = time_calls(calls, rounds, seed)
    by_name = {each.name: values for each, values in times.items()}
    return [
        {
            "symbols": symbols,
            "variance": variance,
            "implementation": each.name,
            "alpha": each.alpha,
            "seconds": quartiles(values),
            "to_cross_entropy": ratio(values, by_name["torch cross_entropy"]),
            "to_peer": ratio(values, by_name[each.peer]) if each.peer else None,
            "peak_bytes": peak_memory(calls[each], device),
        }
        for each, values in times.items()
    ]


def loss_table(rows: list[dict]) -> str:
    """The rows of :func:`time_losses` as Markdown."""
    lines = [
        [
            row["implementation"],
            row["alpha"],
            1e3 * row["seconds"]["median"],
            row["to_cross_entropy"],
            row["to_peer"],
        ]
        + [row["peak_bytes"] / 2**20]
        for row in rows
    ]
    return table(lines, ["loss", "α", "forward + backward, ms", "×cross_entropy", "×peer", "peak, MiB"])


def accuracy(count: int, variance: float, seed: int, device: str) -> list[dict]:
    """The largest error of a weight, and of the gradient of α relative to the largest one, by α, over rows.

    Truth is the entmax package's bisection of 200 steps in float64, and Proposition 1 of Correia et al. 2019.
    """
    from entmax import entmax_bisect

    generator = torch.Generator().manual_seed(seed)
    scores, grad = ((torch.randn(1, count, 1, 128, generator=generator)).to(device) for _ in range(2))
    scores = scores * variance**0.5
    rows = []
    for value in ALPHAS:
        alpha = torch.full((count, 1, 1), value, device=device)  # every row is a head
        z = scores.double()
        p = torch.softmax(z, -1) if value == 1 else entmax_bisect(z, alpha.double(), n_iter=200)
        log_p, eps = torch.where(p > 0, p.clamp_min(1e-300).log(), 0.0), value - 1
        h = -p * log_p
        if eps:
            skewed = torch.where(p > 0, p.clamp_min(1e-300) ** (1 - eps), 0.0)
            skewed = skewed / skewed.sum(-1, keepdim=True)
            slope = (p - skewed) / eps**2 + (h - skewed * h.sum(-1, keepdim=True)) / eps
        else:
            slope = (h * log_p - p * (h * log_p).sum(-1, keepdim=True)) / 2
        slope = (grad.double() * slope).sum(-1, keepdim=True)
        for contender in contenders():
            if contender.alpha not in (PER_HEAD, value):
                continue
            learned = contender.alpha == PER_HEAD
            argument = alpha.clone().requires_grad_() if learned else value
            weights = contender.function(scores, argument)
            row = {
                "implementation": contender.name,
                "given": contender.alpha,
                "alpha": value,
                "variance": variance,
            }
            row["weights"] = (weights - p).abs().max().item()
            if learned:
                error = torch.autograd.grad(weights, argument, grad)[0] - slope
                row["alpha_gradient"] = (error.abs().max() / slope.abs().max()).item()
            rows.append(row)
    return rows


def accuracy_table(rows: list[dict], what: str) -> str:
    """Errors of ``weights`` or of ``alpha_gradient`` as Markdown, a column per α."""
    lines: dict[tuple, dict] = {}
    for row in rows:
        if what in row:
            lines.setdefault((row["implementation"], row["given"]), {})[row["alpha"]] = f"{row[what]:.1e}"
    cells = [[*name, *(errors.get(alpha) for alpha in ALPHAS)] for name, errors in lines.items()]
    return table(cells, ["implementation", "α", *(f"α = {alpha:g}" for alpha in ALPHAS)])


def main() -> None:
    """Measure, print, and write what is known after each part."""
    parser = new_parser(__doc__, rounds=11)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="BxHxTxS", help="shapes of the scores")
    args = parser.parse_args()
    device, report = begin(args)
    rounds = args.rounds or (3 if args.quick else 11)
    count = 16 if args.quick else 512  # rows of scores, for accuracy and losses
    report.update(rounds=rounds, accuracy=[], kernels=[], losses=[])

    def done(part: str, title: str, rows: list[dict], *tables: str) -> None:
        report[part] += rows
        write_report(args.output, report)
        print(f"{title}\n\n" + "\n\n".join(tables) + "\n", flush=True)

    for variance in VARIANCES:
        rows = accuracy(count, variance, args.seed, device)
        shown = (accuracy_table(rows, what) for what in ("weights", "alpha_gradient"))
        done("accuracy", f"errors of weights, of dα; scores from N(0, {variance})", rows, *shown)
    for shape in args.shapes[:1] if args.quick else args.shapes:
        for variance in VARIANCES:
            rows = time_kernels([int(size) for size in shape.split("x")], variance, rounds, args.seed, device)
            done("kernels", f"scores {shape} from N(0, {variance})", rows, kernel_table(rows))
    for symbols in SYMBOLS[:1] if args.quick else SYMBOLS:
        for variance in VARIANCES:
            rows = time_losses(count, symbols, variance, rounds, args.seed, device)
            done("losses", f"{count} rows of {symbols} scores from N(0, {variance})", rows, loss_table(rows))
    print(args.output)


if __name__ == "__main__":
    main()
