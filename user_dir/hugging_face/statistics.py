"""The statistics of heads that our report and figures read, of a model of transformers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import ATTENTION_TYPES
from ..files import write_json
from .attention_interface import attention_type, attentions_of, heads_of

BINS = 20
MEASURES = {
    "alpha": "α of the head",
    "density": "share of the pairs, also outside of windows, with a weight above 0, mean over sequences",
    "density_histogram": f"number of sequences by density, in {BINS} equal bins over [0, 1]",
    "keys_per_query": "number of keys with a weight above 0, mean over queries",
    "entropy": "entropy of a query's attention in nats, mean over queries",
    "diversity": "Jensen-Shannon divergence of the heads / log(heads), from 0 to 1, mean over queries",
    "union_density": "density of the union of the heads' supports, mean over sequences",
    "sorted_densities": "densities of the heads, ascending",
}


@torch.no_grad()
def head_statistics(
    model: nn.Module, batches: Iterable[dict[str, Any]], output: str | Path | None = None
) -> dict[str, Any]:
    """Statistics of each attention head of a model over batches.

    The definitions are those of Correia et al. 2019 (https://arxiv.org/abs/1909.00015), section 5.

    Args:
        model: after ``sparsify``, or with ``eager`` attention; it is left in eval mode.
        batches: keyword arguments of the model; ``attention_mask`` and ``decoder_attention_mask`` or
            ``labels`` (−100) say what is padding.
        output: a file NAME.heads.json to write, for ``adaptively-sparse report --statistics``.

    Returns:
        What is written: under ``heads`` a row for each head, under ``layers`` one for each layer of an
        attention type; ``measures`` says what their numbers are.
    """
    modules = [(attention_type(module), module) for _, module in attentions_of(model.eval())]
    modules.sort(key=lambda pair: ATTENTION_TYPES.index(pair[0]))
    kinds, tables = [kind for kind, _ in modules], [[] for _ in modules]
    for batch in batches:
        outputs = model(**batch, output_attentions=True)
        source, target = batch.get("attention_mask"), batch.get("decoder_attention_mask")
        if "decoder_context" not in kinds:
            weights, target = outputs.attentions, source
        else:
            weights = outputs.encoder_attentions + outputs.decoder_attentions + outputs.cross_attentions
            if target is None and batch.get("labels") is not None:
                target = batch["labels"] != -100
        for kind, table, of_layer in zip(kinds, tables, weights, strict=True):
            table.append(_measure(kind, of_layer, {"source": source, "target": target}))
    heads, layers = [], []
    for number, (kind, module) in enumerate(modules):
        place = {"attention": kind, "layer": kinds[:number].count(kind)}
        alpha = module.alpha().flatten() if hasattr(module, "alpha") else torch.ones(1)
        rows, of_layer = _rows(torch.cat(tables[number]), alpha.expand(heads_of(module)).tolist())
        heads += [{**place, "head": head, **row} for head, row in enumerate(rows)]
        layers.append({**place, **of_layer})
    result = {"sentences": sum(map(len, tables[0])), "heads": heads, "layers": layers}
    result |= {"roles": {}, "measures": MEASURES}
    if output is not None:
        write_json(output, result)
    return result


def _measure(kind: str, weights: Tensor, masks: dict[str, Tensor | None]) -> Tensor:
    """Sums over the queries of each sequence, (B, 2H + 4): keys attended to by each head; by any; pairs;
    queries; the entropy of each head; the divergence of heads.
    """
    query = masks["source" if kind == "encoder_self" else "target"]
    key = masks["target" if kind == "decoder_self" else "source"]
    possible = torch.ones_like(weights[:, 0], dtype=torch.bool)
    for mask, dim in ((query, 2), (key, 1)):
        if mask is not None:
            possible &= mask.bool().unsqueeze(dim)
    if kind == "decoder_self":
        possible = possible.tril()
    weights = weights.double() * possible[:, None]
    mean = weights.mean(1, keepdim=True)
    entropies, of_mean = (torch.special.entr(p).sum((2, 3)) for p in (weights, mean))
    divergence = (of_mean - entropies.mean(1, keepdim=True)) / (math.log(weights.size(1)) or math.nan)
    attended, union = ((p > 0).sum((2, 3)) for p in (weights, mean))
    pairs, queries = possible.sum((1, 2))[:, None], possible.any(-1).sum(1)[:, None]
    return torch.cat([attended, union, pairs, queries, entropies, divergence], 1).cpu()


def _rows(sums: Tensor, alphas: list[float]) -> tuple[list[dict], dict]:
    """The rows of heads and of their layer, from the sums of :func:`_measure` for all sequences."""
    count = len(alphas)
    attended, union, pairs, queries, entropies, divergence = sums.split([count, 1, 1, 1, count, 1], 1)
    densities, asked = attended / pairs, queries.sum()
    bins = (attended * BINS / pairs).long().clamp(max=BINS - 1)
    heads = [
        {
            "alpha": alpha,
            "density": densities[:, head].mean().item(),
            "density_histogram": torch.bincount(bins[:, head], minlength=BINS).tolist(),
            "keys_per_query": (attended[:, head].sum() / asked).item(),
            "entropy": (entropies[:, head].sum() / asked).item(),
        }
        for head, alpha in enumerate(alphas)
    ]
    return heads, {
        "diversity": (divergence.sum() / asked).item() if count > 1 else None,
        "union_density": (union / pairs).mean().item(),
        "sorted_densities": sorted(row["density"] for row in heads),
    }
