"""Time and memory of the normalizers, on scores of typical attention shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby

import torch
from torch import Tensor

from ..errors import UserError
from ..tables import Column, mebibytes, table
from .contenders import PER_HEAD, Contender, alphas
from .measure import free_memory, peak_memory, quartiles, ratio, time_calls

SHAPES = ((128, 8, 32, 32), (32, 8, 128, 128), (8, 8, 512, 512))  # (B, H, T, S)
VARIANCES = (1, 9)
SOFTMAX = "torch softmax"
# forward without autograd; with the gradient of the scores; also with the gradient of α
MEASURES = {"forward": "forward, ms", "backward": "+ backward, ms", "alpha_backward": "+ dα, ms"}

# Float32 tensors of the size of the scores that are held at once: scores, gradient, and what entmax15 was
# measured to need besides (785 MiB for scores of 64 MiB, see docs/benchmarks.md).
TENSORS = 15


def require_memory(shape: tuple[int, ...], device: torch.device) -> None:
    """Raise a UserError unless there is memory to measure scores of ``shape``, (B, H, T, S)."""
    needed, there = 4 * TENSORS * math.prod(shape), free_memory(device)
    if needed > there:
        raise UserError(
            f"--shapes {'x'.join(map(str, shape))} needs about {needed / 2**30:,.1f} GiB, and the "
            f"{'GPU' if device.type == 'cuda' else 'machine'} has {there / 2**30:,.1f} GiB; give smaller ones"
        )


def time_kernels(
    contenders: list[Contender],
    shape: tuple[int, int, int, int],
    variance: float,
    rounds: int,
    seed: int,
    device: torch.device,
) -> list[dict]:
    """Measure each contender, torch's softmax among them, on scores (B, H, T, S) from N(0, variance).

    Returns:
        A row per measure, with the median and quartiles of seconds, and ``to_softmax`` and ``to_peer``, the
        ratios to torch's softmax and to the peer in the same measure (``backward`` of softmax, which has no
        α). The last measure of each contender has ``peak_bytes``, excluding its inputs.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randn(shape, generator=generator) * variance**0.5).to(device)
    grad = torch.randn(shape, generator=generator).to(device)
    calls = {
        (contender, measure): call
        for contender in contenders
        for measure, call in _calls(contender, scores, grad).items()
    }
    title = f"{'x'.join(map(str, shape))} N(0, {variance:g})"
    times = time_calls(calls, rounds, seed, title, within=lambda key: key[0].chosen())

    rows = []
    by_name = {(key[0].name, key[0].alpha, key[1]): values for key, values in times.items()}
    for (contender, measure), values in times.items():
        softmax = by_name[SOFTMAX, 1.0, "forward" if measure == "forward" else "backward"]
        peer = by_name.get((contender.peer, contender.alpha, measure))
        row = {
            "shape": list(shape),
            "variance": variance,
            "implementation": contender.name,
            "alpha": contender.alpha,
            "measure": measure,
            "seconds": quartiles(values),
            "to_softmax": ratio(values, softmax),
            "peer": contender.peer,
            "to_peer": ratio(values, peer) if peer else None,
        }
        if measure == ("alpha_backward" if contender.alpha == PER_HEAD else "backward"):  # the last
            with contender.chosen():
                row["peak_bytes"] = peak_memory(calls[contender, measure], device)
        rows.append(row)
    return rows


def _calls(contender: Contender, scores: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    alpha = alphas(contender.alpha, scores.size(1), scores.device)
    leaf = scores.detach().requires_grad_()

    def forward():
        with torch.no_grad():
            return contender.function(scores, alpha)

    def backward():
        return torch.autograd.grad(contender.function(leaf, alpha), leaf, grad)

    calls = {"forward": forward, "backward": backward}
    if contender.alpha == PER_HEAD:
        learned = alpha.clone().requires_grad_()
        calls["alpha_backward"] = lambda: torch.autograd.grad(
            contender.function(leaf, learned), (leaf, learned), grad
        )
    return calls


def kernel_tables(rows: list[dict]) -> str:
    """The rows of :func:`time_kernels` as Markdown: one table per shape and variance."""
    columns = [column for measure in MEASURES for column in _columns(measure)]
    columns.append(Column("peak, MiB", _peak))
    tables = []
    for (shape, variance), group in groupby(rows, key=lambda row: (row["shape"], row["variance"])):
        lines = [
            (contender, {cell["measure"]: cell for cell in cells})
            for contender, cells in groupby(group, key=lambda row: (row["implementation"], row["alpha"]))
        ]
        title = f"scores {' × '.join(map(str, shape))} from N(0, {variance:g})"
        tables.append(f"{title}\n\n{table(['implementation', 'α'], lines, columns)}")
    return "\n\n".join(tables)


def _columns(measure: str) -> list[Column]:
    """Columns of a measure: its time in ms, and its ratios to softmax and to the peer."""

    def shown(figure: Callable[[dict], float | None]) -> Callable[[dict], str]:
        def cell(cells: dict) -> str:
            value = figure(cells[measure]) if measure in cells else None
            return "" if value is None else f"{value:.3g}"

        return cell

    return [
        Column(MEASURES[measure], shown(lambda cell: 1000 * cell["seconds"]["median"])),
        Column("×softmax", shown(lambda cell: cell["to_softmax"])),
        Column("×peer", shown(lambda cell: cell["to_peer"])),
    ]


def _peak(cells: dict[str, dict]) -> str:
    return next(mebibytes(cell["peak_bytes"], ".1f") for cell in cells.values() if "peak_bytes" in cell)
