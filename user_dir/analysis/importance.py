"""How much each head matters: the loss without it, and without ever more heads at once.

Beyond Correia et al. 2019: masking of single heads is that of Michel, Levy and Neubig 2019 (section 3), here
to ask whether sparse heads are the ones that matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import torch
from tqdm import tqdm

from .capture import Head, all_heads, masked_heads, negative_log_likelihood
from .correlation import constant, rank_correlation
from .heads import by_attention

MEASURES = ("density", "alpha", "entropy")
"""What is held against importance."""


@torch.no_grad()
def losses(model, samples: Iterable[dict], padding: int, masks: list[list[Head]]) -> list[float]:
    """The loss of ``model`` under each of ``masks``, a list of heads whose output is zero.

    Args:
        model: what :func:`~.capture.load_model` gives.
        samples: batches in fairseq's form, each of which goes through all masks.
        padding: the padding symbol.
        masks: sets of heads.

    Returns:
        For each mask, −log p of the target with teacher forcing, in nats per token, ``</s>`` included and
        without label smoothing.
    """
    totals, tokens = [0.0] * len(masks), 0
    for sample in samples:
        for i, heads in enumerate(tqdm(masks, desc="masks", leave=False, disable=None)):
            with masked_heads(model, heads):
                total, count = negative_log_likelihood(model, sample, padding)
            totals[i] += total
        tokens += count
    return [total / tokens for total in totals]


def pruning_orders(rows: list[dict], seeds: int) -> dict[str, list[list[Head]]]:
    """In which orders to prune the heads: by name, one order, or ``seeds`` of them for ``random``.

    ``importance``: that whose masking costs least goes first. ``density``: the densest first, so that sparse
    heads stay. ``alpha``: the smallest α first, for the same reason. The last two are not there where all
    heads are the same in it.

    Args:
        rows: of the heads, with ``importance``, ``density`` and ``alpha``.
        seeds: number of random orders.
    """
    heads = [head_of(row) for row in rows]

    def by(key) -> list[list[Head]]:
        return [[head_of(row) for row in sorted(rows, key=key)]]

    orders = {"importance": by(lambda row: row["importance"])}
    if not constant([row["density"] for row in rows]):
        orders["density"] = by(lambda row: -row["density"])
    if not constant([row["alpha"] for row in rows]):
        orders["alpha"] = by(lambda row: row["alpha"])
    orders["random"] = [random.Random(seed).sample(heads, len(heads)) for seed in range(1, seeds + 1)]
    return orders


def pruned_counts(heads: int, points: int) -> list[int]:
    """Numbers of heads to prune: from 1 to all, ``points`` of them, evenly."""
    points = min(points, heads)
    return sorted({round(heads * i / points) for i in range(1, points + 1)})


def correlations(rows: list[dict]) -> list[dict]:
    """Spearman's rank correlation of importance with each of :data:`MEASURES`.

    Over all heads, and over those of each attention type: ``spearman`` and ``p_value`` as
    :func:`.rank_correlation` gives them.
    """
    found = []
    for attention, chosen in {"all": rows, **by_attention(rows)}.items():
        importance = [row["importance"] for row in chosen]
        for measure in MEASURES:
            values = [row[measure] for row in chosen]
            rho, p_value = rank_correlation(values, importance)
            found.append(
                {
                    "attention": attention,
                    "measure": measure,
                    "heads": len(chosen),
                    "spearman": rho,
                    "p_value": p_value,
                }
            )
    return found


def head_of(row: dict) -> Head:
    """The head that a row of the statistics is of."""
    return row["attention"], row["layer"], row["head"]


def head_importance(
    model, samples: Callable[[str], Iterable[dict]], padding: int, rows: list[dict], points: int, seeds: int
) -> dict:
    """Importance of every head, curves of pruning, and rank correlations.

    Args:
        model: what :func:`~.capture.load_model` gives.
        samples: gives the batches, for a name of the pass that a progress bar can show.
        padding: the padding symbol.
        rows: of the statistics of the same model and batches, each with ``alpha``, ``density``, ``entropy``.
        points: number of points of each curve.
        seeds: number of random orders.

    Returns:
        ``loss``: of the whole model. ``heads``: the rows' names and measures, with ``loss`` without that head
        and ``importance``, how much greater it is (nats per token). ``curves``: by order, ``pruned`` numbers
        of heads from 0 to all, and ``losses``, a list for each order (several for ``random``).
        ``correlations``: see :func:`correlations`.
    """
    singles = [[head] for head in all_heads(model)]
    base, *without = losses(model, samples("each head"), padding, [[], *singles])
    by_head = {heads[0]: loss for heads, loss in zip(singles, without)}
    names = ("attention", "layer", "head", *MEASURES)
    heads = [
        {
            **{name: row[name] for name in names},
            "loss": by_head[head_of(row)],
            "importance": by_head[head_of(row)] - base,
        }
        for row in rows
    ]
    counts = pruned_counts(len(heads), points)
    orders = pruning_orders(heads, seeds)
    masks = [order[:count] for each in orders.values() for order in each for count in counts]
    found = iter(losses(model, samples("pruning"), padding, masks))
    curves = {
        name: {"pruned": [0, *counts], "losses": [[base, *(next(found) for _ in counts)] for _ in each]}
        for name, each in orders.items()
    }
    return {"loss": base, "heads": heads, "curves": curves, "correlations": correlations(heads)}
