"""Time and memory of the normalizers themselves, on scores as attention makes them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from .contenders import PER_HEAD, Contender
from .measure import interleaved, peak_memory, ratio, seconds, spread, warm_up

SHAPES = ((128, 8, 32, 32), (32, 8, 128, 128), (8, 8, 512, 512))  # (B, H, T, S)
VARIANCES = (1, 9)
SOFTMAX = "torch softmax"
# forward without autograd; with the gradient of the scores; with that of α too
MEASURES = ("forward", "backward", "alpha_backward")


def time_kernels(
    contenders: list[Contender],
    shape: tuple[int, int, int, int],
    variance: float,
    rounds: int,
    seed: int,
    device: torch.device,
) -> list[dict]:
    """A row for each contender and measure.

    Args:
        contenders: torch's softmax among them.
        shape: (B, H, T, S) of the scores.
        variance: scores are drawn from N(0, variance).
        rounds: how often each contender is run.
        seed: of the scores and of the order in a round.
        device: where.

    Returns:
        Rows with the median and quartiles of seconds, and ``to_softmax`` and ``to_peer``: the time as a
        multiple of torch's softmax and of the peer's, in the same measure (of softmax, ``backward``
        where it has no α). The last measure of each contender has ``peak_bytes`` beyond its inputs.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator) * variance**0.5
    grad = torch.randn(shape, generator=generator)
    scores, grad = scores.to(device), grad.to(device)
    calls = {
        (contender, measure): call
        for contender in contenders
        for measure, call in _calls(contender, scores, grad).items()
    }
    title = f"{'x'.join(map(str, shape))} N(0, {variance:g})"
    repeats = {}
    for (contender, measure), call in calls.items():
        with contender.chosen():
            repeats[contender, measure] = warm_up(call, device)
    jobs = {key: functools.partial(_run, key[0], call, device, repeats[key]) for key, call in calls.items()}
    times = interleaved(jobs, rounds, seed, title)

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
            "seconds": spread(values),
            "to_softmax": ratio(values, softmax),
            "peer": contender.peer,
            "to_peer": ratio(values, peer) if peer else None,
        }
        if measure == _last_measure(contender):
            with contender.chosen():
                row["peak_bytes"] = peak_memory(calls[contender, measure], device)
        rows.append(row)
    return rows


def alphas(contender: Contender, heads: int, device: torch.device) -> float | Tensor:
    """What a contender is given for α: a number, or (H, 1, 1) from 1.05 to 1.95."""
    if contender.alpha == PER_HEAD:
        return torch.linspace(1.05, 1.95, heads, device=device).view(-1, 1, 1)
    return contender.alpha


def _last_measure(contender: Contender) -> str:
    return "alpha_backward" if contender.alpha == PER_HEAD else "backward"


def _calls(contender: Contender, scores: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    alpha = alphas(contender, scores.size(1), scores.device)
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


def _run(contender: Contender, call: Callable[[], object], device, repeats: int, number: int) -> float:
    with contender.chosen():
        return seconds(call, device, repeats)
