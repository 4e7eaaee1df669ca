"""Importance of heads: the increase in loss when a head, or a growing set of heads, is masked.

Not in Correia et al. 2019: single heads are masked as by Michel, Levy and Neubig 2019 (section 3), to test
whether sparse heads are more important.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import torch
from tqdm import tqdm

from ..translation.scored_split import ScoredSplit
from ..translation.search import Search
from ..translation.split_search import translate_split
from .capture import Head, all_heads, masked_heads, negative_log_likelihood
from .head_tables import by_attention, head_of
from .head_tests import constant, rank_correlation
from .split import Split

MEASURES = ("density", "alpha", "entropy")
"""The measures that importance is correlated with."""


@torch.no_grad()
def losses(model, samples: Iterable[dict], padding: int, masks: list[list[Head]]) -> list[float]:
    """The loss of ``model`` under each of ``masks``, lists of heads whose output is set to zero.

    It is −log p of the target with teacher forcing, in nats per token, including ``</s>``, without label
    smoothing. Each of ``samples``, batches in fairseq's form, is evaluated under all masks.
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
    smallest α first, for the same reason. The last two are omitted if all heads are equal.
    """

    def by(measure: str, sign: int = 1) -> list[list[Head]]:
        return [[head_of(row) for row in sorted(rows, key=lambda row: sign * row[measure])]]

    orders = {"importance": by("importance")}
    if not constant([row["density"] for row in rows]):
        orders["density"] = by("density", -1)
    if not constant([row["alpha"] for row in rows]):
        orders["alpha"] = by("alpha")
    heads = [head_of(row) for row in rows]
    orders["random"] = [random.Random(seed).sample(heads, len(heads)) for seed in range(1, seeds + 1)]
    return orders


def pruned_counts(heads: int, points: int) -> list[int]:
    """At most ``points`` evenly spaced numbers of heads to prune, from 1 to all."""
    points = min(points, heads)
    return sorted({round(heads * i / points) for i in range(1, points + 1)})


def correlations(rows: list[dict]) -> list[dict]:
    """Spearman's rank correlation of importance with each of :data:`MEASURES`.

    Over all heads and over the heads of each attention type; ``spearman`` and ``p_value`` are from
    :func:`.rank_correlation`.
    """
    found = []
    for attention, chosen in {"all": rows, **by_attention(rows)}.items():
        importance = [row["importance"] for row in chosen]
        for measure in MEASURES:
            rho, p_value = rank_correlation([row[measure] for row in chosen], importance)
            row = {"attention": attention, "measure": measure, "heads": len(chosen)}
            found.append({**row, "spearman": rho, "p_value": p_value})
    return found


def head_importance(split: Split, rows: list[dict], points: int, seeds: int) -> dict:
    """Importance of every head, pruning curves, and rank correlations.

    Args:
        split: a model over a split, with teacher forcing.
        rows: its statistics, each row with ``alpha``, ``density`` and ``entropy``.
        points: number of points per curve.
        seeds: number of random orders.

    Returns:
        ``loss``: of the unmasked model. ``heads``: the rows' names and measures, with the ``loss`` without
        the head and its ``importance``, the increase in loss (nats per token). ``curves``: by order,
        ``pruned``, numbers of heads from 0 to all, and ``losses``, a list per order (several for ``random``).
        ``correlations``: see :func:`correlations`.
    """
    model, padding = split.model, split.padding
    singles = [[head] for head in all_heads(model)]
    base, *without = losses(model, split.samples("each head"), padding, [[], *singles])
    by_head = {heads[0]: loss for heads, loss in zip(singles, without)}
    heads = []
    for row in rows:
        loss = by_head[head_of(row)]
        kept = {name: row[name] for name in ("attention", "layer", "head", *MEASURES)}
        heads.append({**kept, "loss": loss, "importance": loss - base})
    counts = pruned_counts(len(heads), points)
    orders = pruning_orders(heads, seeds)
    masks = [order[:count] for each in orders.values() for order in each for count in counts]
    found = iter(losses(model, split.samples("pruning"), padding, masks))
    curves = {
        name: {"pruned": [0, *counts], "losses": [[base, *(next(found) for _ in counts)] for _ in each]}
        for name, each in orders.items()
    }
    return {"loss": base, "heads": heads, "curves": curves, "correlations": correlations(heads)}


def bleu_without_each_head(split: Split, rows: list[dict], beam: int = 5) -> dict:
    """Add to each row of a head the ``bleu`` of the model without that head.

    BLEU is computed as by evaluate.py, on detokenised text as the corpus specifies. Returns ``bleu`` of the
    unmasked model, and ``bleu_signature``, sacrebleu's signature.
    """
    scored = ScoredSplit(split.corpus, split.subset, split.direction)

    def bleu(description: str) -> float:
        found = translate_split(
            split.model,
            split.task,
            split.subset,
            Search(beam, limit=scored.limit, max_tokens=split.max_tokens),
            sentences=split.sentences,
            description=description,
        )
        return scored.bleu_of(found.texts)

    whole = bleu("BLEU")
    for i, row in enumerate(rows, start=1):
        with masked_heads(split.model, [head_of(row)]):
            row["bleu"] = bleu(f"BLEU without head {i} of {len(rows)}")
    return {"bleu": whole, "bleu_signature": str(scored.bleu.get_signature())}
