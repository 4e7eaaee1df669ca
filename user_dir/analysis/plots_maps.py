"""Attention heat maps as figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ..attention.types import TITLES
from .maps import SentenceMaps
from .plots import is_wide, sized_figure, styled

WEIGHT_COLOURS = LinearSegmentedColormap.from_list(
    "weights", ["#cfe3f2", "#4a98c9", "#08306b"]
).with_extremes(bad="white")
"""From light blue, distinct from white paper, for weights just above 0, to dark blue for 1."""
_CELL, _MIN_CELL = 0.17, 0.1  # inches; keep tokens legible
_BESIDE = 0.9  # inches next to a map, for its tokens
_BAR = 0.6  # inches for the colour bar
_BEGIN = re.compile("^▁(?=.)")


class Panel(NamedTuple):
    """A map to draw."""

    title: str
    weights: np.ndarray  # (T, S)
    queries: list[str]  # the names of the T rows
    keys: list[str]  # the names of the S columns
    rows: str = "query"
    columns: str = "key"


def panel(sentence: SentenceMaps, head: tuple[str, int, int], model: str = "") -> Panel:
    """The map of a head: attention type, layer and head. Its title names ``model``, and α if it is known.

    A row of the decoder is named by the token that it writes, not by the one before, which is its query.

    Raises:
        UserError: there is no such head.
    """
    kind, layer, number = head
    weights = sentence.head(kind, layer, number)
    title = f"{TITLES[kind]}\nlayer {layer}, head {number}"
    if kind in sentence.alphas:
        title += f", α = {sentence.alphas[kind][layer, number]:.2f}"
    title = f"{model}\n{title}" if model else title
    if kind == "encoder_self":
        return Panel(title, weights, sentence.queries(kind), sentence.keys(kind))
    columns = "key: the token read" if kind == "decoder_self" else "key: the source token"
    return Panel(title, weights, sentence.target, sentence.keys(kind), "query: the token written", columns)


@styled
def head_maps(maps: Sequence[Panel], columns: int | None = None, width: float | None = None) -> Figure:
    """Vector heat maps side by side; weights of exactly zero are left in the paper's colour.

    There are ``columns`` maps, or all, side by side, and fewer if cells would be too small for the ``width``
    in inches; None for as wide as the maps need. Lines enclose the ``[SEP]`` that parts the source and the
    machine translation of a post-editor's input.
    """
    columns = min(columns or len(maps), len(maps))
    keys, cell, least = [len(each.keys) for each in maps], _CELL, 1.0
    if width is not None:
        least = 0.0
        while (cell := _cell_of(width, keys, columns)) < _MIN_CELL and columns > 1:
            columns -= 1
    rows = -(-len(maps) // columns)
    widths = [max(least, cell * max(keys[column::columns])) for column in range(columns)]
    heights = [
        max(least, *(cell * len(each.queries) for each in maps[row * columns : (row + 1) * columns]))
        for row in range(rows)
    ]
    natural = sum(widths) + _BESIDE * columns + _BAR
    figure = sized_figure(width or natural, sum(heights) + 1.1 * rows, exact=width is not None)
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths, height_ratios=heights)
    for axes in grid.flat[len(maps) :]:
        axes.remove()
    size = min(7.0, 72 * cell * 0.85)
    meshes = [_draw(axes, each, size) for axes, each in zip(grid.flat, maps)]
    bar = figure.colorbar(meshes[-1], ax=list(grid.flat[: len(maps)]), shrink=0.6, aspect=25, pad=0.02)
    bar.set_label("attention weight (exactly 0: empty)")
    bar.set_ticks([0, 0.2, 0.4, 0.6, 0.8, 1], labels=["above 0", "0.2", "0.4", "0.6", "0.8", "1"])
    bar.solids.set(rasterized=False, edgecolor="face")
    return figure


def _cell_of(width: float, keys: list[int], columns: int) -> float:
    """Width of a cell in inches."""
    widest = sum(max(keys[column::columns]) for column in range(columns))
    return max(0.02, min(2 * _CELL, (width - _BESIDE * columns - _BAR) / widest))


def _draw(axes: Axes, panel: Panel, size: float) -> QuadMesh:
    title, weights, queries, keys, rows, columns = panel
    style = {"cmap": WEIGHT_COLOURS, "vmin": 0, "vmax": 1, "edgecolors": "0.9", "linewidth": 0.4}
    mesh = axes.pcolormesh(np.ma.masked_equal(weights, 0), **style)
    axes.set(aspect="equal", xlabel=columns, ylabel=rows)
    axes.set_title(title, fontsize=8)
    axes.invert_yaxis()
    # Chinese, Japanese and Korean keys are upright, one character below the other.
    across = ["\n".join(key) if is_wide(key) else key for key in spoken(keys)]
    axes.set_xticks(np.arange(len(keys)) + 0.5, across, fontsize=size)
    for label, key in zip(axes.get_xticklabels(), keys):
        label.set_rotation(0 if is_wide(key) else 90)
    axes.set_yticks(np.arange(len(queries)) + 0.5, spoken(queries), fontsize=size)
    for tokens, line in ((keys, axes.axvline), (queries, axes.axhline)):
        for place in (number for number, token in enumerate(tokens) if token.lstrip("▁") == "[SEP]"):
            line(place, color="0.35", linewidth=0.8)
            line(place + 1, color="0.35", linewidth=0.8)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set(color="0.9", linewidth=0.4)
    return mesh


def spoken(tokens: Sequence[str]) -> list[str]:
    """Pieces as people read them, the same as in the report.

    ▁, which marks the start of a word, is left out, or ␣ where it is alone, because few fonts have it; a
    hyphen marks a piece that continues a word of letters.
    """
    marked = any(_BEGIN.match(token) for token in tokens)
    inner = [marked and token[:1].isalnum() and not is_wide(token) for token in tokens]
    plain = [_BEGIN.sub("", token).replace("▁", "␣") for token in tokens]
    return [("‑" if goes_on else "") + token for token, goes_on in zip(plain, inner)]
