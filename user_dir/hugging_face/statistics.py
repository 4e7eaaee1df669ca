"""The statistics of heads that our report and figures read, of a model of transformers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import ATTENTION_TYPES
from .attention_interface import attentions_of, heads_of

SIDES = {
    "encoder_self": ("source", "source"),
    "decoder_self": ("target", "target"),
    "decoder_context": ("target", "source"),
}
BINS = 20
MEASURES = {
    "alpha": "α of the head",
    "density": "share of the possible query-key pairs with a weight above 0, mean over sequences",
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
        model: one that has gone through ``sparsify``, or whose attention is ``eager``.
        batches: keyword arguments of the model; ``attention_mask`` and ``decoder_attention_mask`` or
            ``labels`` (−100) say what is padding.
        output: a file NAME.heads.json to write, for ``adaptively-sparse report --statistics``.

    Returns:
        ``{"heads": [{"attention": …, "layer": …, "head": …, "density": …}, …], "layers": […], …}``; what
        numbers mean is said under ``measures``.
    """
    model.eval()
    modules: dict[str, list[nn.Module]] = {kind: [] for kind in ATTENTION_TYPES}
    for _, module in attentions_of(model):
        modules[_attention_type(module)].append(module)
    measured: dict[str, list[list[Tensor]]] = {kind: [[] for _ in layers] for kind, layers in modules.items()}
    for batch in batches:
        outputs = model(**batch, output_attentions=True)
        masks = _masks(batch, bool(modules["decoder_context"]))
        for kind, layers in _weights(outputs, modules).items():
            for batches_of_layer, weights in zip(measured[kind], layers):
                batches_of_layer.append(_measure(kind, weights, masks))
    heads, layers = [], []
    for kind, of_kind in measured.items():
        for layer, tables in enumerate(of_kind):
            place = {"attention": kind, "layer": layer}
            alpha = getattr(modules[kind][layer], "alpha", None)
            count = heads_of(modules[kind][layer])
            alphas = torch.ones(count) if alpha is None else alpha().flatten().expand(count)
            rows, of_layer = _rows(torch.cat(tables), alphas.tolist())
            heads += [{**place, "head": head, **row} for head, row in enumerate(rows)]
            layers.append({**place, **of_layer})
    sequences = sum(len(table) for table in next(filter(None, measured.values()))[0])
    result = {"sentences": sequences, "heads": heads, "layers": layers, "roles": {}, "measures": MEASURES}
    if output is not None:
        Path(output).write_text(json.dumps(result, ensure_ascii=False), encoding="utf-8")
    return result


def _attention_type(module: Any) -> str:
    if getattr(module, "is_cross_attention", False):
        return "decoder_context"
    if getattr(module, "is_causal", False):
        return "decoder_self"
    return "decoder_context" if getattr(module, "is_decoder", False) else "encoder_self"


def _weights(outputs: Any, modules: dict[str, list[nn.Module]]) -> dict[str, tuple[Tensor, ...]]:
    """The weights (B, H, T, S) of each layer, by attention type."""
    if getattr(outputs, "encoder_attentions", None) is not None:
        every = outputs.encoder_attentions, outputs.decoder_attentions, outputs.cross_attentions
        return dict(zip(ATTENTION_TYPES, every))
    return {next(kind for kind, layers in modules.items() if layers): outputs.attentions}


def _masks(batch: dict[str, Any], translates: bool) -> dict[str, Tensor | None]:
    """Which tokens of source and target are no padding, (B, S) and (B, T), or None if all are."""
    source, target = batch.get("attention_mask"), batch.get("decoder_attention_mask")
    if not translates:
        return {"source": source, "target": source}
    if target is None and batch.get("labels") is not None:
        target = batch["labels"] != -100
    return {"source": source, "target": target}


def _measure(kind: str, weights: Tensor, masks: dict[str, Tensor | None]) -> Tensor:
    """Sums over the queries of each sequence, (B, 2H + 4): keys attended to by each head; by any; pairs;
    queries; the entropy of each head; the divergence of heads.
    """
    query, key = masks[SIDES[kind][0]], masks[SIDES[kind][1]]
    possible = torch.ones_like(weights[:, 0], dtype=torch.bool)
    if query is not None:
        possible &= query.bool()[:, :, None]
    if key is not None:
        possible &= key.bool()[:, None]
    if kind == "decoder_self":
        possible = possible.tril()
    weights = weights.double() * possible[:, None]
    mean = weights.mean(1, keepdim=True)
    entropies, of_mean = (torch.special.entr(each).sum((2, 3)) for each in (weights, mean))
    divergence = (of_mean - entropies.mean(1, keepdim=True)) / (math.log(weights.size(1)) or math.nan)
    attended, union = ((each > 0).sum((2, 3)) for each in (weights, mean))
    pairs, queries = possible.sum((1, 2))[:, None], possible.any(-1).sum(1)[:, None]
    return torch.cat([attended, union, pairs, queries, entropies, divergence], 1).cpu()


def _rows(sums: Tensor, alphas: list[float]) -> tuple[list[dict], dict]:
    """The rows of heads and of their layer, from what :func:`_measure` says of all sequences."""
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
