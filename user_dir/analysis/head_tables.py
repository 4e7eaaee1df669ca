"""Rows of head statistics: grouped, summarised, named and formatted as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


def by_attention(rows: list[dict]) -> dict[str, list[dict]]:
    """Group rows of heads or layers by attention type, keeping their order."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["attention"], []).append(row)
    return groups


def by_layer(rows: list[dict], measure: str) -> dict[int, list[float]]:
    """A measure of the heads of each layer, from rows of one attention type."""
    layers: dict[int, list[float]] = {}
    for row in rows:
        layers.setdefault(row["layer"], []).append(row[measure])
    return layers


def alpha_and_density(rows: list[dict]) -> dict[str, float]:
    """Mean, minimum and maximum α and mean density of some heads."""
    alphas = [row["alpha"] for row in rows]
    return {
        "alpha_mean": statistics.fmean(alphas),
        "alpha_min": min(alphas),
        "alpha_max": max(alphas),
        "density_mean": statistics.fmean(row["density"] for row in rows),
    }


def head_of(row: dict) -> tuple[str, int, int]:
    """Attention type, layer and head of a row."""
    return row["attention"], row["layer"], row["head"]


def head_name(row: dict) -> str:
    """The name of a head, such as ``encoder_self layer 0 head 2``; both count from 0."""
    return f"{row['attention']} layer {row['layer']} head {row['head']}"


def head_table(rows: list[dict]) -> str:
    """α and density of every head as text: a line per layer and a column per head, per attention type."""
    lines = []
    for attention_type, mine in by_attention(rows).items():
        means = alpha_and_density(mine)
        alpha, density = means["alpha_mean"], means["density_mean"]
        lines += [
            f"{attention_type}: mean alpha {alpha:.3f}, mean density {density:.3f}",
            layer_table({name: by_layer(mine, name) for name in ("alpha", "density")}),
            "",
        ]
    return "\n".join(lines)


def layer_table(measures: dict[str, dict[int, Iterable[float]]]) -> str:
    """Format measures side by side as text, with a line per layer and a column per head.

    Args:
        measures: by title, by layer, the values of the layer's heads; all have the same layers.
    """
    width = max(len(list(values)) for layers in measures.values() for values in layers.values())
    heads = "".join(f"  head {head:<2}" for head in range(width))
    lines = [[f"{title:<8}{heads}" for title in measures]]
    for layer in next(iter(measures.values())):
        values = [layers[layer] for layers in measures.values()]
        lines.append([f"layer {layer:<2}" + "".join(f"  {value:7.3f}" for value in each) for each in values])
    return "\n".join("  " + "    ".join(line) for line in lines)
