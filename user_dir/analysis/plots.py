"""The figures of the paper: each a function from data to a matplotlib Figure, which the caller saves.

Models are told apart by line style, marker and lightness besides colour (Okabe and Ito's palette), layers by
a ramp that is as even in grey as in colour: they survive a black-and-white printer and colour blindness.
"""

from __future__ import annotations

import logging
import warnings
from functools import lru_cache, wraps
from itertools import cycle
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..attention_types import ATTENTION_TYPES, TITLES
from ..errors import UserError
from ..io import written_beside
from .heads import by_attention, by_layer
from .trajectories import Trajectories

logger = logging.getLogger(__name__)

FORMATS = ("svg", "pdf", "png")
# Colour, line style and marker of each model; in grey, none is near the one before.
STYLES = (
    ("#0072B2", "-", "o"),
    ("#E69F00", "--", "s"),
    ("#000000", ":", "^"),
    ("#CC79A7", "-.", "D"),
    ("#56B4E9", (0, (1, 3)), "P"),
    ("#009E73", (0, (5, 1, 1, 1, 1, 1)), "v"),
)
_PANEL = 2.4  # inches
_FALLBACK_FONTS = ("Noto Sans CJK JP", "IPAGothic", "Hiragino Sans", "Yu Gothic", "Noto Sans")


@lru_cache
def _settings() -> dict:
    """matplotlib's settings for all figures: text stays text, and Japanese has a font where there is one."""
    there = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in there)]
    text = {"svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 8, "font.family": fonts}
    return {**text, "svg.hashsalt": "heads"}


def styled(draw):
    """Make a function that draws use the settings of all our figures."""

    @wraps(draw)
    def drawing(*args, **kwargs):
        with matplotlib.rc_context(_settings()):
            return draw(*args, **kwargs)

    return drawing


@styled
def save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format its name ends in (svg, pdf, png); the same figure gives the same file."""
    path = Path(path)
    kind = path.suffix.lstrip(".")
    if kind not in FORMATS:
        raise UserError(f"the figure {path} must end in .{', .'.join(FORMATS)}")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with written_beside(path) as beside, warnings.catch_warnings(record=True) as caught:
        figure.savefig(beside, format=kind, dpi=200, bbox_inches="tight", metadata=metadata)
    missing = {str(each.message) for each in caught if "missing from font" in str(each.message)}
    if missing and kind != "svg":  # whose text is drawn by whoever shows it
        logger.warning(
            "%s: %d characters are in no installed font and show as boxes; install one that has them "
            "(for Japanese Noto Sans CJK JP), or take SVG",
            path,
            len(missing),
        )


@styled
def alpha_trajectories(trajectories: Trajectories) -> Figure:
    """α of every head over updates, a panel for each attention type; a head's shade is its layer.

    (Correia et al. 2019, figure 2.)
    """
    figure, rows = _panels(1, len(trajectories.alphas))
    for axes, (attention_type, values) in zip(rows[0], trajectories.alphas.items()):
        layers = values.shape[1]
        for layer, colour in enumerate(_ramp(layers)):
            for head in range(values.shape[2]):
                label = f"layer {layer}" if head == 0 else None
                axes.plot(
                    trajectories.updates, values[:, layer, head], color=colour, linewidth=0.9, label=label
                )
        axes.set_title(TITLES[attention_type])
        axes.set_xlabel("updates")
        axes.margins(x=0)
    _alpha_limits(rows[0], trajectories.alphas.values(), "y")
    rows[0][0].set_ylabel("α")
    _legend(figure, rows[0])
    return figure


@styled
def alpha_histograms(models: dict[str, dict[str, np.ndarray]]) -> Figure:
    """How many heads have which α, in bins of 0.05: a row for each model, a panel for each attention type.

    Args:
        models: by name, by attention type, the α of its heads (any shape).
    """
    types = _types(models.values())
    figure, rows = _panels(len(models), len(types), height=1.5)
    values = [alphas for model in models.values() for alphas in model.values()]
    top = max(2.0, max(float(np.max(each)) for each in values))
    width = 0.05 if top < 11 else (top - 1) / 200
    edges = 1 + width * np.arange(np.ceil((top - 1) / width - 1e-9) + 1)
    for row, (name, model), style in zip(rows, models.items(), cycle(STYLES)):
        for axes, attention_type in zip(row, types):
            alphas = np.ravel(model.get(attention_type, []))
            # A bin holds its upper edge too: heads of the default's greatest α, 2, are in the last.
            counts = np.histogram(np.clip(alphas, edges[0], edges[-1]), edges)[0]
            axes.bar(
                edges[:-1], counts, np.diff(edges), align="edge", color=style[0], edgecolor="white", lw=0.5
            )
            axes.set_xlim(edges[0], edges[-1])
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        row[0].set_ylabel("heads" if len(models) == 1 else f"{name}\nheads")
    _label_columns(rows, types, "α")
    return figure


@styled
def density_histograms(models: dict[str, dict]) -> Figure:
    """Density of every head on every sentence, as a share of these: a panel for each attention type.

    (Correia et al. 2019, figure 3.) ``models``: statistics by the model's name.
    """
    types = _types_of_statistics(models)
    figure, rows = _panels(1, len(types))
    for (name, statistics), style in zip(models.items(), cycle(STYLES)):
        for axes, attention_type in zip(rows[0], types):
            heads = by_attention(statistics["heads"]).get(attention_type)
            if not heads:
                continue
            counts = np.sum([row["density_histogram"] for row in heads], axis=0)
            edges = np.linspace(0, 1, len(counts) + 1)
            share = counts / counts.sum()
            axes.stairs(share, edges, color=style[0], linestyle=style[1], linewidth=1.3, label=name)
            axes.stairs(share, edges, color=style[0], fill=True, alpha=0.12)
    for axes in rows[0]:
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
    _label_columns(rows, types, "density (share of the possible pairs)")
    rows[0][0].set_ylabel("share of heads and sentences")
    _legend(figure, rows[0])
    return figure


@styled
def sorted_densities(models: dict[str, dict]) -> Figure:
    """Mean density of the heads of each layer, sorted, and that of the union of their supports.

    A row for each model, a panel for each attention type; line k joins the k-th densest heads of the layers.
    (Correia et al. 2019, figure 4.) ``models``: statistics by the model's name.
    """
    types = _types_of_statistics(models)
    figure, rows = _panels(len(models), len(types), height=1.8)
    for row, (name, statistics), style in zip(rows, models.items(), cycle(STYLES)):
        for axes, attention_type in zip(row, types):
            layers = by_layer(by_attention(statistics["heads"]).get(attention_type, []), "density")
            for line in zip(*(sorted(layer, reverse=True) for layer in layers.values())):
                axes.plot(line, color=style[0], linewidth=0.9, marker=".", markersize=4)
            rows_of_layers = by_attention(statistics.get("layers", [])).get(attention_type, [])
            union = [each.get("union_density") for each in rows_of_layers]
            if union and None not in union:
                label = "union of the heads"
                axes.plot(
                    union, color="black", linestyle="--", linewidth=1.2, marker="_", markersize=8, label=label
                )
            axes.set_ylim(0, 1.04)
            _layer_ticks(axes, len(layers))
        row[0].set_ylabel("density" if len(models) == 1 else f"{name}\ndensity")
    _label_columns(rows, types, "layer")
    _legend(figure, rows[0])
    return figure


@styled
def diversity(models: dict[str, dict]) -> Figure:
    """Jensen–Shannon divergence between the heads of each layer, a panel for each attention type.

    (Correia et al. 2019, figure 5; over log H, so that it is at most 1.) ``models``: statistics by name.
    """
    types = _types_of_statistics(models)
    figure, rows = _panels(1, len(types))
    for (name, statistics), style in zip(models.items(), cycle(STYLES)):
        for axes, attention_type in zip(rows[0], types):
            rows_of_layers = by_attention(statistics["layers"]).get(attention_type, [])
            values = [each["diversity"] for each in rows_of_layers]
            axes.plot(
                values, color=style[0], linestyle=style[1], marker=style[2], markersize=4, label=name, lw=1.3
            )
            if values:
                _layer_ticks(axes, len(values))
    for axes in rows[0]:
        axes.set_ylim(bottom=0)
    _label_columns(rows, types, "layer")
    rows[0][0].set_ylabel("Jensen–Shannon divergence / log H")
    _legend(figure, rows[0])
    return figure


def alphas_of_heads(statistics: dict) -> dict[str, np.ndarray]:
    """α of the heads in a model's statistics, by attention type."""
    groups = by_attention(statistics["heads"])
    return {name: np.array([row["alpha"] for row in rows]) for name, rows in groups.items()}


def _panels(rows: int, columns: int, height: float = _PANEL) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(1.1 * _PANEL * columns, height * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey="row")
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, grid


def _ramp(count: int) -> list:
    """Colours from dark to light, as even in grey as in colour; the lightest still shows on white."""
    return list(matplotlib.colormaps["viridis"](np.linspace(0, 0.85, count)))


def _alpha_limits(panels, values, axis: str) -> None:
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    margin = max(0.02, 0.04 * (high - low))
    for axes in panels:
        axes.set(**{f"{axis}lim": (max(1.0, low - margin), high + margin)})


def _layer_ticks(axes: Axes, layers: int) -> None:
    axes.set_xlim(-0.3, layers - 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(layers, 8)))


def _label_columns(rows: np.ndarray, types: list[str], label: str) -> None:
    for axes, attention_type in zip(rows[0], types):
        axes.set_title(TITLES[attention_type])
    for axes in rows[-1]:
        axes.set_xlabel(label)


def _legend(figure: Figure, panels) -> None:
    """One legend for all panels, of all that any of them shows."""
    entries = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    if entries:
        figure.legend(
            entries.values(),
            entries.keys(),
            loc="outside lower center",
            ncols=min(len(entries), 6),
            frameon=False,
        )


def _types(models) -> list[str]:
    return [name for name in ATTENTION_TYPES if any(name in model for model in models)]


def _types_of_statistics(models: dict[str, dict]) -> list[str]:
    return _types([by_attention(model["heads"]) for model in models.values()])
