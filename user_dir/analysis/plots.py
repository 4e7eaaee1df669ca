"""The figures of the paper, and heat maps: functions from data to a matplotlib Figure, for :func:`save`.

Models differ in line style, marker and lightness as well as colour (Okabe and Ito's palette), and layers have
a perceptually uniform colour map, so that figures are legible in greyscale and for colour-blind readers.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..attention.types import ATTENTION_TYPES, TITLES
from ..errors import UserError
from ..files import atomic_write
from .maps import Head, SentenceMaps
from .results import ModelAnalysis, by_attention
from .trajectories import Trajectories

FORMATS = ("svg", "pdf", "png")
# Colour, line style and marker of each model; consecutive ones differ clearly in greyscale.
STYLES = (
    ("#0072B2", "-", "o"),
    ("#E69F00", "--", "s"),
    ("#000000", ":", "^"),
    ("#CC79A7", "-.", "D"),
    ("#56B4E9", (0, (1, 3)), "P"),
    ("#009E73", (0, (5, 1, 1, 1, 1, 1)), "v"),
)
_FALLBACK_FONTS = ("Noto Sans CJK JP", "IPAGothic", "Hiragino Sans", "Yu Gothic", "Noto Sans")
WEIGHT_COLOURS = LinearSegmentedColormap.from_list(
    "weights", ["#cfe3f2", "#4a98c9", "#08306b"]
).with_extremes(bad="white")
"""From light blue, distinct from white paper, for weights just above 0, to dark blue for 1."""
_PANEL = 2.4  # inches
_CELL = 0.17  # inches of a weight in a heat map; keeps tokens legible
_AXES = {
    "encoder_self": ("query", "key"),
    "decoder_self": ("query: the token written", "key: the token read"),
    "decoder_context": ("query: the token written", "key: the source token"),
}
"""The labels of rows and columns of a map."""
_ORDERS = {
    "importance": "least important first",
    "density": "densest first",
    "alpha": "smallest α first",
    "random": "random order",
}


logging.getLogger("fontTools").setLevel(logging.WARNING)  # at INFO it lists the tables of each font in a PDF
_INSTALLED = set(font_manager.get_font_names())
styled = matplotlib.rc_context(
    {
        "svg.fonttype": "none",  # text as text
        "pdf.fonttype": 42,
        "font.size": 8,
        "font.family": ["DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in _INSTALLED)],
        "text.parse_math": False,
        "svg.hashsalt": "heads",
    }
)
"""Decorator of drawing functions: matplotlib's settings for all figures."""


@styled
def save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format of the file name (svg, pdf, png); equal figures give equal files."""
    kind = Path(path).suffix.lstrip(".")
    if kind not in FORMATS:
        raise UserError(f"the figure {path} must end in .{', .'.join(FORMATS)}")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with atomic_write(path) as file:
        figure.savefig(file, format=kind, dpi=200, bbox_inches="tight", metadata=metadata)


def figures(models: Sequence[ModelAnalysis]) -> dict[str, Figure]:
    """All figures of the heads of models, side by side, by the name of the function that draws them.

    ``alpha_trajectories`` is a figure per model; with several models, its name ends in the model's index.
    """
    statistics = {model.name: model.statistics for model in models}
    draws = alpha_histograms, density_histograms, sorted_densities, diversity
    drawn = {draw.__name__: draw(statistics) for draw in draws}
    for number, model in enumerate(models):
        if model.trajectories is not None:
            suffix = f"_{number}" if len(models) > 1 else ""
            drawn[f"alpha_trajectories{suffix}"] = alpha_trajectories(model.trajectories)
    return drawn


@styled
def alpha_trajectories(trajectories: Trajectories) -> Figure:
    """α of every head over updates, one panel per attention type, coloured by layer.

    (Correia et al. 2019, figure 2.)
    """
    alphas = trajectories.alphas
    figure, panels = _panels([""], list(alphas), "updates", "α")
    layers = max(values.shape[1] for values in alphas.values())
    # From dark to light, uniform in greyscale too; the lightest is visible on white.
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, layers))
    for axes, values in zip(panels[0], alphas.values()):
        for layer, head in np.ndindex(values.shape[1:]):
            label = f"layer {layer}" if head == 0 else None
            style = {"color": colours[layer], "linewidth": 0.9, "label": label}
            axes.plot(trajectories.updates, values[:, layer, head], **style)
        axes.margins(x=0)
    _legend(figure, panels)
    return figure


@styled
def alpha_histograms(models: dict[str, dict]) -> Figure:
    """Histogram of the heads' α in bins of 0.05: a row per model, a panel per attention type.

    ``models``: statistics by model name.
    """
    top = max(2.0, *(row["alpha"] for report in models.values() for row in report["heads"]))
    edges = 1 + 0.05 * np.arange(np.ceil((top - 1) / 0.05) + 1)

    def draw(axes: Axes, name: str, heads: list[dict], style: tuple) -> None:
        counts = np.histogram([round(row["alpha"], 6) for row in heads], edges)[0]
        axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=style[0], edgecolor="white", lw=0.5)
        axes.set_xlim(edges[0], edges[-1])
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))

    return _of_models(models, "heads", draw, "α", "heads", row_height=1.5)


@styled
def density_histograms(models: dict[str, dict]) -> Figure:
    """Histogram of the density of every head on every sentence, one panel per attention type.

    (Correia et al. 2019, figure 3.) ``models``: statistics by model name.
    """

    def draw(axes: Axes, name: str, heads: list[dict], style: tuple) -> None:
        counts = np.sum([row["density_histogram"] for row in heads], axis=0)
        edges, share = np.linspace(0, 1, len(counts) + 1), counts / counts.sum()
        axes.stairs(share, edges, color=style[0], linestyle=style[1], linewidth=1.3, label=name)
        axes.stairs(share, edges, color=style[0], fill=True, alpha=0.12)
        axes.set_xlim(0, 1)

    labels = "density (share of all possible pairs)", "share of heads\n× sentences"
    return _of_models(models, "heads", draw, *labels)


@styled
def sorted_densities(models: dict[str, dict]) -> Figure:
    """Mean densities of the heads of each layer, sorted, and the density of the union of their supports.

    A row per model, a panel per attention type; line k connects the k-th densest heads of the layers.
    (Correia et al. 2019, figure 4.) ``models``: statistics by model name.
    """

    def draw(axes: Axes, name: str, layers: list[dict], style: tuple) -> None:
        label = f"{f'{name}: ' if len(models) > 1 else ''}k-th densest head of each layer"
        thin = {"color": style[0], "linewidth": 0.9, "marker": ".", "markersize": 4, "label": label}
        for line in zip(*(row["sorted_densities"][::-1] for row in layers)):
            axes.plot(line, **thin)
        dashed = {"color": "black", "linestyle": "--", "linewidth": 1.2, "marker": "_", "markersize": 8}
        axes.plot([row["union_density"] for row in layers], label="union of the heads' supports", **dashed)
        axes.set_ylim(0, 1.04)

    return _of_models(models, "layers", draw, "layer", "density", row_height=1.8)


@styled
def diversity(models: dict[str, dict]) -> Figure:
    """Jensen–Shannon divergence between the heads of each layer, one panel per attention type.

    (Correia et al. 2019, figure 5, divided by log H, so that it is at most 1.) ``models``: statistics
    by name.
    """

    def draw(axes: Axes, name: str, layers: list[dict], style: tuple) -> None:
        values = [np.nan if row["diversity"] is None else row["diversity"] for row in layers]
        line = dict(zip(("color", "linestyle", "marker"), style))
        axes.plot(values, label=name, markersize=4, lw=1.3, **line)

    return _of_models(models, "layers", draw, "layer", "Jensen–Shannon\ndivergence, share\nof its maximum")


@styled
def importance(report: dict) -> Figure:
    """Loss against the number of pruned heads, one line per order, and importance against density.

    ``report`` is of :func:`~.importance.head_importance`; random orders are drawn as their mean and range.
    """
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    curves, scatter = figure.subplots(1, 2)
    for (colour, line, marker), (name, curve) in zip(STYLES, report["curves"].items()):
        losses, label = np.array(curve["losses"]), _ORDERS[name]  # (orders, points)
        if len(losses) > 1:
            label += f" (mean and range of {len(losses)})"
            curves.fill_between(curve["pruned"], losses.min(0), losses.max(0), color=colour, alpha=0.2, lw=0)
        style = {"color": colour, "linestyle": line, "marker": marker, "markersize": 3, "lw": 1.2}
        curves.plot(curve["pruned"], losses.mean(0), label=label, **style)
    curves.set(xlabel="heads pruned", ylabel="loss (nats per token)")
    rhos = {
        row["attention"]: row["spearman"] for row in report["correlations"] if row["measure"] == "density"
    }
    for (colour, _, marker), (kind, rows) in zip(STYLES, by_attention(report["heads"]).items()):
        rho = rhos.get(kind)
        label = TITLES[kind] + ("" if rho is None else f" (ρ = {rho:+.2f})")
        points = [row["density"] for row in rows], [row["importance"] for row in rows]
        scatter.scatter(*points, color=colour, marker=marker, s=14, label=label)
    scatter.axhline(0, color="0.7", lw=0.8, zorder=0)
    scatter.set(xlabel="density", ylabel="importance (nats per token)")
    for axes in (curves, scatter):
        axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def is_wide(text: str) -> bool:
    """Whether a text has Chinese, Japanese or Korean characters, which must not be rotated."""
    return any(unicodedata.east_asian_width(character) in "WF" for character in text)


def _of_models(
    models: dict[str, dict],
    part: str,
    draw: Callable[[Axes, str, list[dict], tuple], None],
    x_label: str,
    y_label: str,
    row_height: float | None = None,
) -> Figure:
    """A figure with a panel per attention type: one row for all models, or one each with ``row_height``.

    ``draw(panel, name, rows, style)`` draws a model's statistics of ``part``, ``heads`` or ``layers``.
    """
    groups = {name: by_attention(report[part]) for name, report in models.items()}
    types = [kind for kind in ATTENTION_TYPES if any(kind in group for group in groups.values())]
    names = list(models) if row_height else [""]
    figure, grid = _panels(names, types, x_label, y_label, row_height or _PANEL)
    of_models = np.broadcast_to(grid, (len(models), len(types)))
    for row, (name, group), style in zip(of_models, groups.items(), cycle(STYLES)):
        for axes, kind in zip(row, types):
            if kind not in group:
                continue
            draw(axes, name, group[kind], style)
            if part == "layers":
                layers = max(len(other.get(kind, ())) for other in groups.values())
                axes.set_xlim(-0.3, layers - 0.7)
                axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(layers, 8)))
    grid[0, 0].set_ylim(bottom=0)  # not before all is drawn: it ends the scaling of the top
    _legend(figure, grid)
    return figure


def _panels(
    rows: list[str], types: list[str], x_label: str, y_label: str, height: float = _PANEL
) -> tuple[Figure, np.ndarray]:
    """A figure and its panels (rows, attention types), ``height`` inches high; several rows are named."""
    figure = Figure(figsize=(1.1 * _PANEL * len(types), height * len(rows) + 0.5), layout="constrained")
    grid = figure.subplots(len(rows), len(types), squeeze=False, sharey="row")
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    for axes, kind in zip(grid[0], types):
        axes.set_title(TITLES[kind], fontsize=9)
    for axes, name in zip(grid[:, 0], rows):
        side = f"{name}\n{y_label}" if len(rows) > 1 else y_label
        axes.set_ylabel(side, **({"rotation": 0, "ha": "right"} if is_wide(side) else {}))
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
    return figure, grid


def _legend(figure: Figure, panels: np.ndarray) -> None:
    """One legend for all panels, with every label that occurs in any of them."""
    entries = {}
    for axes in panels.flat:
        entries |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels())}
    if entries:
        style = {"ncols": min(len(entries), 3), "frameon": False}
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", **style)


@styled
def head_maps(maps: Sequence[tuple[SentenceMaps, Head, str]], columns: int | None = None) -> Figure:
    """Vector heat maps; weights of exactly zero are left white.

    ``maps``: sentence, head and the name of its model, which may be empty; ``columns``: how many are side by
    side (default: all). A row of the decoder is labelled with the token that it predicts, not with its query,
    which is the token before. Raises UserError if a head does not exist.
    """
    columns = min(columns or len(maps), len(maps))
    rows = -(-len(maps) // columns)
    shapes = [_CELL * np.array(sentence.head(*head).shape) for sentence, head, _ in maps]
    heights = [max(1.0, *(shape[0] for shape in shapes[i * columns :][:columns])) for i in range(rows)]
    widths = [max(1.0, *(shape[1] for shape in shapes[i::columns])) for i in range(columns)]
    # 0.9 inches next to a map and 1.1 above and below for its tokens, 0.6 for the colour bar.
    size = sum(widths) + 0.9 * columns + 0.6, sum(heights) + 1.1 * rows
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths, height_ratios=heights)
    for axes in grid.flat[len(maps) :]:
        axes.remove()
    meshes = [_draw(axes, *panel) for axes, panel in zip(grid.flat, maps)]
    bar = figure.colorbar(meshes[-1], ax=list(grid.flat[: len(maps)]), shrink=0.6, aspect=25, pad=0.02)
    bar.set_label("attention weight (exactly 0: empty)")
    bar.set_ticks([0, 0.2, 0.4, 0.6, 0.8, 1], labels=["above 0", "0.2", "0.4", "0.6", "0.8", "1"])
    bar.solids.set(rasterized=False, edgecolor="face")
    return figure


def _draw(axes: Axes, sentence: SentenceMaps, head: Head, model: str) -> QuadMesh:
    kind, layer, number = head
    alpha, (rows, columns) = sentence.alphas[kind][layer, number], _AXES[kind]
    keys = sentence.keys(kind)
    queries = sentence.source if kind == "encoder_self" else sentence.target
    style = {"cmap": WEIGHT_COLOURS, "vmin": 0, "vmax": 1, "edgecolors": "0.9", "linewidth": 0.4}
    mesh = axes.pcolormesh(np.ma.masked_equal(sentence.head(*head), 0), **style)
    axes.set(aspect="equal", xlabel=columns, ylabel=rows)
    title = f"{TITLES[kind]}\nlayer {layer}, head {number}, α = {alpha:.2f}"
    axes.set_title(f"{model}\n{title}" if model else title, fontsize=8)
    axes.invert_yaxis()
    # Chinese, Japanese and Korean keys are upright, one character below the other.
    across = ["\n".join(key) if is_wide(key) else key for key in keys]
    axes.set_xticks(np.arange(len(keys)) + 0.5, across, fontsize=7)
    for label, key in zip(axes.get_xticklabels(), keys):
        label.set_rotation(0 if is_wide(key) else 90)
    axes.set_yticks(np.arange(len(queries)) + 0.5, queries, fontsize=7)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set(color="0.9", linewidth=0.4)
    return mesh
