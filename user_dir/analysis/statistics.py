"""Statistics of the heads (Correia et al. 2019, section 5), streamed over a data split."""

from __future__ import annotations

import torch
from torch import Tensor

from .capture import batches, captured_attention, possible_pairs


def density(weights: Tensor, possible: Tensor) -> Tensor:
    """Share of the possible pairs that a head attends to at all, per sentence.

    Args:
        weights: attention weights, (B, H, T, S).
        possible: which pairs of query and key there are, (B, T, S).

    Returns:
        (B, H): number of weights above 0, exactly and with no tolerance, over the number of pairs.
    """
    attended = (weights > 0) & possible[:, None]
    return attended.sum((2, 3)) / possible.sum((1, 2))[:, None]


@torch.no_grad()
def head_statistics(model, task, subset: str) -> dict:
    """α and density of every head of ``model``, the mean over the sentences of ``subset``.

    Returns:
        ``{"sentences": N, "heads": [{"attention": …, "layer": …, "head": …, "alpha": …, "density": …}, …]}``;
        layers and heads count from 0.
    """
    totals: dict[str, list[Tensor]] = {}
    sentences = 0
    with captured_attention(model) as captured:
        for sample in batches(task, subset):
            model(**sample["net_input"])
            sentences += sample["nsentences"]
            pairs = possible_pairs(sample, task.source_dictionary.pad())
            for attention_type, layers in captured.items():
                sums = [density(weights, pairs[attention_type]).sum(0).double() for weights in layers]
                before = totals.get(attention_type, [0] * len(sums))
                totals[attention_type] = [old + new for old, new in zip(before, sums)]
    heads = []
    for attention_type, layers in model.alphas().items():
        for layer, alphas in enumerate(layers):
            for head, alpha in enumerate(alphas.tolist()):
                heads.append(
                    {
                        "attention": attention_type,
                        "layer": layer,
                        "head": head,
                        "alpha": round(alpha, 6),
                        "density": round(totals[attention_type][layer][head].item() / sentences, 6),
                    }
                )
    return {"sentences": sentences, "heads": heads}


def head_table(heads: list[dict]) -> str:
    """α and density of every head as text: a block per attention type, a line per layer."""
    lines = []
    for attention_type in dict.fromkeys(row["attention"] for row in heads):
        rows = [row for row in heads if row["attention"] == attention_type]
        width = max(row["head"] for row in rows) + 1
        alpha, dense = (sum(row[name] for row in rows) / len(rows) for name in ("alpha", "density"))
        lines.append(f"{attention_type}: mean alpha {alpha:.3f}, mean density {dense:.3f}")
        columns = "".join(f"  head {head:<2}" for head in range(width))
        lines.append(f"  {'alpha':<8}{columns}    {'density':<8}{columns}")
        for layer in dict.fromkeys(row["layer"] for row in rows):
            cells = {
                name: "".join(f"  {row[name]:7.3f}" for row in rows if row["layer"] == layer)
                for name in ("alpha", "density")
            }
            lines.append(f"  layer {layer:<2}{cells['alpha']}    layer {layer:<2}{cells['density']}")
        lines.append("")
    return "\n".join(lines)
