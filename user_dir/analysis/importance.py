"""Importance of heads: the increase in loss when a head, or a growing set of heads, is masked.

Not in Correia et al. 2019: single heads are masked as by Michel, Levy and Neubig 2019 (section 3), to test
whether sparse heads are more important.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from itertools import permutations
from pathlib import Path

import torch
from tqdm import tqdm

from ..files import write_json
from .capture import Split, masked_heads, negative_log_likelihood
from .maps import Head
from .measuring import head_statistics
from .results import by_attention, head_name, head_of, rounded, text_table

MEASURES = ("density", "alpha", "entropy")
"""The measures that importance is correlated with."""
_EXACT = 8  # up to so many heads, the p-value is exact, over at most 8! = 40,320 permutations


@torch.no_grad()
def losses(model, samples: Iterable[dict], padding: int, masks: list[list[Head]]) -> list[float]:
    """The loss of ``model`` under each of ``masks``, lists of heads whose output is set to zero.

    This is −log p of the target (with ``--output-alpha``, the α-entmax loss) with teacher forcing, without
    label smoothing, in nats per token, including ``</s>``. Each fairseq batch is evaluated under all masks.
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
    """Orders in which to prune the heads, by name: one order each, ``seeds`` orders for ``random``.

    ``importance``: least important first. ``density``: densest first, which keeps sparse heads. ``alpha``:
    smallest α first, which also keeps sparse heads. ``density`` or ``alpha`` is omitted if it is constant.
    """
    heads, orders = [head_of(row) for row in rows], {}
    for measure, sign in (("importance", 1), ("density", -1), ("alpha", 1)):
        if measure == "importance" or not constant([row[measure] for row in rows]):
            orders[measure] = [[head_of(row) for row in sorted(rows, key=lambda row: sign * row[measure])]]
    orders["random"] = [random.Random(seed).sample(heads, len(heads)) for seed in range(1, seeds + 1)]
    return orders


def constant(values: Sequence[float]) -> bool:
    """Whether all values are the same but for rounding."""
    return math.isclose(min(values), max(values), rel_tol=1e-6, abs_tol=1e-12)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, float | None]:
    """Spearman's ρ of two measures of the same heads, and the two-sided p-value for no correlation.

    The p-value assumes that heads are independent, and is about one model; adjust it for several tests. Both
    values are None for fewer than three heads, or if a measure is constant.
    """
    if len(first) < 3 or constant(first) or constant(second):
        return None, None
    from scipy import stats  # takes a second to import

    rho, p_value = stats.spearmanr(first, second)
    if len(first) <= _EXACT:  # scipy's approximation is bad for few heads: 0 for three in the same order
        x, y = (ranks - ranks.mean() for ranks in map(stats.rankdata, (first, second)))
        sums = abs(y[list(permutations(range(len(first))))] @ x)
        p_value = (sums > abs(y @ x) - 1e-9).mean()
    return float(rho), float(p_value)


def correlations(rows: list[dict]) -> list[dict]:
    """Spearman's rank correlation of importance with each of :data:`MEASURES`.

    Over all heads and over the heads of each attention type; ``spearman`` and ``p_value`` are from
    :func:`rank_correlation`.
    """
    correlated = []
    for attention, heads in {"all": rows, **by_attention(rows)}.items():
        importance = [row["importance"] for row in heads]
        for measure in MEASURES:
            rho, p_value = rank_correlation([row[measure] for row in heads], importance)
            row = {"attention": attention, "measure": measure, "heads": len(heads)}
            correlated.append({**row, "spearman": rho, "p_value": p_value})
    return correlated


def head_importance(split: Split, rows: list[dict], points: int, seeds: int) -> dict:
    """Importance of every head, pruning curves, and rank correlations.

    ``rows`` are the statistics of the split's heads, ``points`` the most points of a curve, and ``seeds`` the
    number of random orders.

    Returns:
        ``loss``: of the unmasked model. ``heads``: the rows' names and measures, with the ``loss`` without
        the head and its ``importance``, the increase in loss (nats per token). ``curves``: by order,
        ``pruned``, numbers of heads from 0 to all, and ``losses``, a list per order (several for ``random``).
        ``correlations``: see :func:`correlations`.
    """
    model, padding = split.model, split.padding
    base, *without = losses(model, split.samples(), padding, [[], *([head_of(row)] for row in rows)])
    heads = []
    for row, loss in zip(rows, without):
        kept = {name: row[name] for name in ("attention", "layer", "head", *MEASURES)}
        heads.append({**kept, "loss": loss, "importance": loss - base})
    points, orders = min(points, len(heads)), pruning_orders(heads, seeds)
    counts = sorted({round(len(heads) * i / points) for i in range(1, points + 1)})
    masks = [order[:count] for of_name in orders.values() for order in of_name for count in counts]
    pruned = iter(losses(model, split.samples(), padding, masks))
    curves = {
        name: {"pruned": [0, *counts], "losses": [[base, *(next(pruned) for _ in counts)] for _ in of_name]}
        for name, of_name in orders.items()
    }
    return {"loss": base, "heads": heads, "curves": curves, "correlations": correlations(heads)}


def write_importance(split: Split, output: Path, points: int = 12, random_orders: int = 5) -> dict:
    """Write the importance of each head to ``output`` as JSON, whose content is returned.

    The curves are drawn beside it, with the ending ``.svg``. See :func:`head_importance`.
    """
    from . import plots  # matplotlib, which other results do not need

    statistics = head_statistics(split)
    importance = head_importance(split, statistics["heads"], points, random_orders)
    report = rounded({**split.facts, "sentences": statistics["sentences"], **importance})
    plots.save(plots.importance(report), output.with_suffix(".svg"))
    write_json(output, report)
    return report


def importance_summary(report: dict, shown: int = 5) -> str:
    """The most and least important heads, and rank correlations, as text."""
    heads = sorted(report["heads"], key=lambda row: -row["importance"])
    if len(heads) > 2 * shown:
        heads[shown:-shown] = []
    rows = [[head_name(row), row["importance"], row["alpha"], row["density"]] for row in heads]
    columns = ["measure", "attention", "heads", "spearman", "p_value"]
    correlated = [[row[column] for column in columns] for row in report["correlations"]]
    return (
        f"loss {report['loss']:.4f} nats per token; masking one of the most or least important heads adds\n"
        f"{text_table(rows, ['', 'loss', 'alpha', 'density'])}\n"
        "rank correlation (Spearman) of importance; p not adjusted for the number of tests\n"
        f"{text_table(correlated, columns)}"
    )
