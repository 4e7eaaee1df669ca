"""Heat maps of attention as a figure."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure

from .plots import styled


@styled
def head_maps(maps: list[tuple[str, np.ndarray, list[str], list[str]]], columns: int | None = None) -> Figure:
    """Heat maps side by side; where a weight is exactly zero, nothing is drawn.

    Args:
        maps: title, weights (T, S), the T queries and the S keys of each.
        columns: how many beside each other; all, if not given.
    """
    columns = min(columns or len(maps), len(maps))
    rows = -(-len(maps) // columns)
    cell = 0.17  # inches; tokens stay legible
    widths = [
        max(1.0, *(cell * len(keys) for _, _, _, keys in maps[column::columns])) for column in range(columns)
    ]
    heights = [
        max(1.0, *(cell * len(each[2]) for each in maps[row * columns : (row + 1) * columns]))
        for row in range(rows)
    ]
    figure = Figure(
        figsize=(sum(widths) + 0.9 * columns + 0.6, sum(heights) + 1.1 * rows), layout="constrained"
    )
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths, height_ratios=heights)
    colours = weight_colours()
    for axes in grid.flat[len(maps) :]:
        axes.remove()
    image = None
    for axes, (title, weights, queries, keys) in zip(grid.flat, maps):
        image = axes.imshow(
            np.ma.masked_equal(weights, 0), cmap=colours, vmin=0, vmax=1, interpolation="none"
        )
        axes.set_title(title, fontsize=8)
        axes.set_xticks(range(len(keys)), _printable(keys), rotation=90, fontsize=7)
        axes.set_yticks(range(len(queries)), _printable(queries), fontsize=7)
        axes.set_xticks(np.arange(-0.5, len(keys)), minor=True)
        axes.set_yticks(np.arange(-0.5, len(queries)), minor=True)
        axes.grid(which="minor", color="0.9", linewidth=0.4)
        axes.tick_params(which="both", length=0)
        axes.set_xlabel("key")
        axes.set_ylabel("query")
    bar = figure.colorbar(image, ax=list(grid.flat[: len(maps)]), shrink=0.6, aspect=25, pad=0.02)
    bar.set_label("attention weight (exactly 0: empty)")
    return figure


def weight_colours() -> Colormap:
    """From a tint that stands out from empty paper, for the least weight above 0, to dark blue for 1."""
    colours = LinearSegmentedColormap.from_list("weights", ["#cfe3f2", "#4a98c9", "#08306b"])
    return colours.with_extremes(bad="white")


def _printable(tokens: list[str]) -> list[str]:
    """sentencepiece's ▁, which few fonts have, as an underscore; $ as itself, not as a formula's start."""
    return [token.replace("▁", "_").replace("$", r"\$") for token in tokens]
