"""The figure of head importance, drawn from data to a matplotlib Figure that the caller saves."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ..attention_types import TITLES
from .head_tables import by_attention
from .plots import STYLES, sized_figure, styled

_ORDERS = {
    "importance": "least important first",
    "density": "densest first",
    "alpha": "smallest α first",
    "random": "random order",
}

_ABOVE = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}


@styled
def importance_figure(report: dict) -> Figure:
    """Loss against the number of pruned heads, one line per order, and importance against density.

    ``report`` is of :func:`~.importance.head_importance`; random orders are drawn as their mean and range.
    """
    figure = sized_figure(7.2, 3.6, exact=False)
    curves, scatter = figure.subplots(1, 2)
    for (colour, line, marker), (name, curve) in zip(STYLES, report["curves"].items()):
        losses = np.array(curve["losses"])  # (orders, points)
        label = _ORDERS[name]
        if len(losses) > 1:
            label += f" (mean and range of {len(losses)})"
            curves.fill_between(curve["pruned"], losses.min(0), losses.max(0), color=colour, alpha=0.2, lw=0)
        curves.plot(
            curve["pruned"], losses.mean(0), color=colour, ls=line, marker=marker, ms=3, lw=1.2, label=label
        )
    curves.set_xlabel("heads pruned")
    curves.set_ylabel("loss (nats per token)")
    curves.legend(frameon=False, **_ABOVE)

    for (colour, _, marker), (attention, rows) in zip(STYLES, by_attention(report["heads"]).items()):
        scatter.scatter(
            [row["density"] for row in rows],
            [row["importance"] for row in rows],
            color=colour,
            marker=marker,
            s=14,
            label=TITLES[attention] + _correlation(report, attention),
        )
    scatter.axhline(0, color="0.7", lw=0.8, zorder=0)
    scatter.set_xlabel("density")
    scatter.set_ylabel("importance (nats per token)")
    scatter.legend(frameon=False, **_ABOVE)
    return figure


def _correlation(report: dict, attention: str) -> str:
    for row in report["correlations"]:
        if (row["attention"], row["measure"]) == (attention, "density") and row["spearman"] is not None:
            return f" (ρ = {row['spearman']:+.2f})"
    return ""
