"""Time and memory of the losses of an output layer, on rows as long as a vocabulary."""

from __future__ import annotations

import functools
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from ..entmax import entmax_loss
from ..tables import Column, mebibytes, table
from .contenders import Contender, entmax_package
from .measure import peak_memory, quartiles, ratio, time_calls

SYMBOLS = (8_000, 32_000)
VARIANCES = (1, 9)
ROWS = 512  # targets of a batch
CROSS_ENTROPY, PEER = "torch cross_entropy", "entmax15_loss"


def loss_contenders() -> list[Contender]:
    """Cross-entropy, the losses of the ``entmax`` package, and ours for several α.

    Raises:
        UserError: the ``entmax`` package is not installed.
    """
    package = entmax_package()
    ours = [
        Contender("ours", alpha, functools.partial(entmax_loss, alpha=alpha))
        for alpha in (1.1, 1.25, 1.5, 2.0)
    ]
    return [
        Contender(CROSS_ENTROPY, 1.0, functools.partial(F.cross_entropy, reduction="none")),
        Contender(PEER, 1.5, package.entmax15_loss),
        Contender("sparsemax_loss", 2.0, package.sparsemax_loss),
        *ours,
    ]


def time_losses(
    contenders: list[Contender],
    symbols: int,
    variance: float,
    rounds: int,
    seed: int,
    device: torch.device,
    rows: int = ROWS,
) -> list[dict]:
    """Measure forward and backward of each contender, cross-entropy and entmax15_loss among them.

    Scores are ``rows`` rows of ``symbols`` from N(0, variance).

    Returns:
        A row per contender, with the median and quartiles of seconds, ``to_cross_entropy`` and ``to_peer``
        (the ratios to cross-entropy and to entmax15_loss) and ``peak_bytes``.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(rows, symbols, generator=generator) * variance**0.5).to(device).requires_grad_()
    target = torch.randint(symbols, (rows,), generator=generator).to(device)

    def call(contender: Contender) -> Tensor:
        return torch.autograd.grad(contender.function(scores, target).sum(), scores)[0]

    calls = {each: functools.partial(call, each) for each in contenders}
    times = time_calls(calls, rounds, seed, f"{rows} x {symbols} N(0, {variance:g})")
    by_name = {each.name: values for each, values in times.items()}
    return [
        {
            "rows": rows,
            "symbols": symbols,
            "variance": variance,
            "implementation": each.name,
            "alpha": each.alpha,
            "seconds": quartiles(values),
            "to_cross_entropy": ratio(values, by_name[CROSS_ENTROPY]),
            "to_peer": ratio(values, by_name[PEER]),
            "peak_bytes": peak_memory(calls[each], device),
        }
        for each, values in times.items()
    ]


COLUMNS = [
    Column("forward + backward, ms", lambda row: f"{1000 * row['seconds']['median']:.3g}"),
    Column("×cross_entropy", lambda row: f"{row['to_cross_entropy']:.3g}"),
    Column("×entmax15_loss", lambda row: f"{row['to_peer']:.3g}"),
    Column("peak, MiB", lambda row: mebibytes(row["peak_bytes"], ".1f")),
]


def loss_tables(rows: list[dict]) -> str:
    """The rows of :func:`time_losses` as Markdown: one table per number of symbols and variance."""
    tables = []
    for (count, symbols, variance), group in groupby(
        rows, key=lambda row: (row["rows"], row["symbols"], row["variance"])
    ):
        lines = [((row["implementation"], f"{row['alpha']:g}"), row) for row in group]
        title = f"{count} rows of {symbols:,} scores from N(0, {variance:g})"
        tables.append(f"{title}\n\n{table(['implementation', 'α'], lines, COLUMNS)}")
    return "\n\n".join(tables)
