"""Attention heat maps as figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure

from ..attention_types import TITLES
from ..errors import UserError
from .maps import SentenceMaps
from .plots import is_wide, sized_figure, styled
from .words import separator_place

_CELL = 0.17  # inches; keeps tokens legible
_MIN_CELL = 0.1
_BESIDE = 0.9  # inches next to a map, for its tokens
_BAR = 0.6  # inches for the colour bar
_BEGIN = re.compile("^▁(?=.)")
MAX_CELLS = 100_000  # of a figure; four times as many take gigabytes to draw, and nobody reads them


class Panel(NamedTuple):
    """A map to draw."""

    title: str
    weights: np.ndarray  # (T, S)
    queries: list[str]  # the names of the T rows
    keys: list[str]  # the names of the S columns
    rows: str = "query"
    columns: str = "key"


def panel(
    sentence: SentenceMaps, alphas: dict[str, np.ndarray], head: tuple[str, int, int], model: str = ""
) -> Panel:
    """The map of a head: attention type, layer and head. Its title names ``model``, and α if it is known.

    A row of the decoder is named by the token that it writes, not by the one before, which is its query.

    Raises:
        UserError: there is no such head.
    """
    kind, layer, number = head
    weights = sentence.head(kind, layer, number)
    title = f"{TITLES[kind]}\nlayer {layer}, head {number}"
    if kind in alphas:
        title += f", α = {alphas[kind][layer, number]:.2f}"
    if model:
        title = f"{model}\n{title}"
    found = Panel(title, weights, sentence.queries(kind), sentence.keys(kind))
    if kind == "encoder_self":
        return found
    columns = "key: the token read" if kind == "decoder_self" else "key: the source token"
    return found._replace(queries=sentence.target, rows="query: the token written", columns=columns)


@styled
def head_maps(maps: list[Panel], columns: int | None = None, width: float | None = None) -> Figure:
    """Vector heat maps side by side; weights of exactly zero are left in the paper's colour.

    Lines enclose the ``[SEP]`` that parts the source and the machine translation of a post-editor's input.

    There are ``columns`` maps, or all, side by side, and fewer if cells would be too small for the ``width``
    in inches; None for as wide as the maps need.

    Raises:
        UserError: the maps have too many cells for one figure.
    """
    maps = [Panel(*each) for each in maps]
    cells = sum(each.weights.size for each in maps)
    if cells > MAX_CELLS:
        longest = max(max(each.weights.shape) for each in maps)
        raise UserError(
            f"the maps to draw have {cells:,} cells, of sentences of up to {longest:,} tokens; "
            f"a figure takes {MAX_CELLS:,}: draw fewer heads or shorter sentences"
        )
    columns = min(columns or len(maps), len(maps))
    keys = [len(each.keys) for each in maps]
    cell = _CELL
    if width is not None:
        while (cell := _cell_of(width, keys, columns)) < _MIN_CELL and columns > 1:
            columns -= 1
        cell = max(0.02, cell)
    rows = -(-len(maps) // columns)
    least = 1.0 if width is None else 0.0
    widths = [max(least, cell * max(keys[column::columns])) for column in range(columns)]
    heights = [
        max(least, *(cell * len(each.queries) for each in maps[row * columns : (row + 1) * columns]))
        for row in range(rows)
    ]
    figure = sized_figure(
        width or sum(widths) + _BESIDE * columns + _BAR, sum(heights) + 1.1 * rows, exact=width is not None
    )
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
    return min(2 * _CELL, (width - _BESIDE * columns - _BAR) / widest)


def _draw(axes: Axes, panel: Panel, size: float) -> QuadMesh:
    title, weights, queries, keys, rows, columns = panel
    mesh = axes.pcolormesh(
        np.ma.masked_equal(weights, 0), cmap=weight_colours(), vmin=0, vmax=1, edgecolors="0.9", linewidth=0.4
    )
    axes.set(aspect="equal", xlabel=columns, ylabel=rows)
    axes.set_title(title, fontsize=8)
    axes.invert_yaxis()
    axes.set_xticks(np.arange(len(keys)) + 0.5, map(_across, spoken(keys)), fontsize=size)
    for label, key in zip(axes.get_xticklabels(), keys):
        label.set_rotation(0 if is_wide(key) else 90)
    axes.set_yticks(np.arange(len(queries)) + 0.5, map(_printable, spoken(queries)), fontsize=size)
    for tokens, draw in ((keys, axes.axvline), (queries, axes.axhline)):
        place = separator_place(tokens)
        for edge in () if place is None else (place, place + 1):
            draw(edge, color="0.35", linewidth=0.8)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set(color="0.9", linewidth=0.4)
    return mesh


def weight_colours() -> Colormap:
    """Colours from light blue, distinct from white paper, for weights just above 0, to dark blue for 1."""
    colours = LinearSegmentedColormap.from_list("weights", ["#cfe3f2", "#4a98c9", "#08306b"])
    return colours.with_extremes(bad="white")


def spoken(tokens: Sequence[str]) -> list[str]:
    """Pieces as people read them, the same as in the report.

    ▁, which marks the start of a word, is left out; a hyphen marks a piece that continues a word of letters.
    """
    marked = any(_BEGIN.match(token) for token in tokens)
    inner = [marked and token[:1].isalnum() and not is_wide(token) for token in tokens]
    return [("‑" if goes_on else "") + _BEGIN.sub("", token) for token, goes_on in zip(tokens, inner)]


def _printable(token: str) -> str:
    """Replace a lone ▁, which few fonts have."""
    return token.replace("▁", "␣")


def _across(token: str) -> str:
    """A token as a column label: Chinese, Japanese and Korean characters upright, one below the other."""
    return "\n".join(token) if is_wide(token) else _printable(token)
