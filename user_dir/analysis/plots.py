"""The figures of the paper: functions from data to a matplotlib Figure, which the caller saves.

Models differ in line style, marker and lightness as well as colour (Okabe and Ito's palette), and layers have
a perceptually uniform colour map, so that figures are legible in greyscale and for colour-blind readers.

Each function takes the ``width`` of the figure in inches; None fits it to the panels. Panels that would be
too narrow side by side are stacked.
"""

from __future__ import annotations

import logging
import unicodedata
import warnings
from collections.abc import Iterator
from functools import lru_cache, wraps
from io import BytesIO
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
from ..io import atomic_write
from .head_tables import by_attention, by_layer
from .trajectories import Trajectories

logger = logging.getLogger(__name__)

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
_PANEL = 2.4  # inches
_MIN_PANEL = 1.75  # inches needed by its title
_FALLBACK_FONTS = ("Noto Sans CJK JP", "IPAGothic", "Hiragino Sans", "Yu Gothic", "Noto Sans")


@lru_cache
def _settings() -> dict:
    """matplotlib's settings for all figures: text as text, in a font with Japanese if one is installed."""
    there = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in there)]
    text = {"svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 8, "font.family": fonts}
    return {**text, "text.parse_math": False, "svg.hashsalt": "heads"}


def styled(draw):
    """Decorate a drawing function to use the settings of all figures."""

    @wraps(draw)
    def drawing(*args, **kwargs):
        with matplotlib.rc_context(_settings()):
            return draw(*args, **kwargs)

    return drawing


class NotebookFigure(Figure):
    """A figure that Jupyter shows as the last value of a cell.

    Attributes:
        exact: keep its size when it is saved, rather than crop it to its content.
    """

    exact = False

    @styled
    def _repr_png_(self) -> bytes:
        image = BytesIO()
        self.savefig(image, format="png", dpi=90, bbox_inches=None if self.exact else "tight")
        return image.getvalue()


def checked_format(path: Path) -> Path:
    """The path; raises UserError unless its name ends in a format of figures."""
    if path.suffix.lstrip(".") not in FORMATS:
        raise UserError(f"the figure {path} must end in .{', .'.join(FORMATS)}")
    return path


@styled
def save(figure: NotebookFigure, path: str | Path) -> None:
    """Write a figure in the format of the file name (svg, pdf, png); equal figures give equal files.

    A figure drawn with a given width keeps it; others are cropped to their content.
    """
    path = checked_format(Path(path))
    kind = path.suffix.lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with atomic_write(path) as beside, warnings.catch_warnings(record=True) as caught:
        cropped = None if figure.exact else "tight"
        figure.savefig(beside, format=kind, dpi=200, bbox_inches=cropped, metadata=metadata)
    missing = {str(each.message) for each in caught if "missing from font" in str(each.message)}
    if missing and kind != "svg":  # an SVG is shown with the viewer's fonts
        logger.warning(
            "%s: %d characters are missing from the installed fonts and appear as boxes; install a font that "
            "has them (for Japanese, Noto Sans CJK JP), or write SVG",
            path,
            len(missing),
        )


@styled
def alpha_trajectories(trajectories: Trajectories, width: float | None = None) -> Figure:
    """α of every head over updates, one panel per attention type, coloured by layer.

    (Correia et al. 2019, figure 2.)
    """
    alphas = trajectories.alphas
    figure, rows = _panels(1, len(alphas), width=width)
    low = min(float(values.min()) for values in alphas.values())
    high = max(float(values.max()) for values in alphas.values())
    margin = max(0.02, 0.04 * (high - low))
    for axes, values in zip(rows[0], alphas.values()):
        for layer, colour in enumerate(_ramp(values.shape[1])):
            for head in range(values.shape[2]):
                style = {"color": colour, "linewidth": 0.9, "label": f"layer {layer}" if head == 0 else None}
                axes.plot(trajectories.updates, values[:, layer, head], **style)
        axes.margins(x=0)
        axes.set_ylim(max(1.0, low - margin), high + margin)
    _label(rows, [""], list(alphas), "updates", "α")
    _legend(figure, rows)
    return figure


@styled
def alpha_histograms(models: dict[str, dict[str, np.ndarray]], width: float | None = None) -> Figure:
    """Histogram of the heads' α in bins of 0.05: a row per model, a panel per attention type.

    ``models``: for each model and attention type, the α of its heads (any shape).
    """
    types = _types(models.values())
    figure, rows = _panels(len(models), len(types), height=1.5, width=width)
    top = max(2.0, *(float(np.max(alphas)) for model in models.values() for alphas in model.values()))
    bin_width = 0.05 if top < 11 else (top - 1) / 200
    edges = 1 + bin_width * np.arange(np.ceil((top - 1) / bin_width - 1e-9) + 1)
    for axes, kind, _, model, (colour, *_) in _each(rows, types, models):
        # The last bin includes its upper edge, for heads at the default's maximum of 2.
        alphas = np.clip(np.ravel(model.get(kind, [])), edges[0], edges[-1])
        counts = np.histogram(alphas, edges)[0]
        axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colour, edgecolor="white", lw=0.5)
        axes.set_xlim(edges[0], edges[-1])
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    _label(rows, list(models), types, "α", "heads")
    return figure


@styled
def density_histograms(models: dict[str, dict], width: float | None = None) -> Figure:
    """Histogram of the density of every head on every sentence, one panel per attention type.

    (Correia et al. 2019, figure 3.) ``models``: statistics by model name.
    """
    types = _types_of_statistics(models)
    figure, rows = _panels(1, len(types), width=width)
    for axes, kind, name, statistics, (colour, line, _) in _each(rows, types, models):
        heads = _rows(statistics, "heads", kind)
        if heads:
            counts = np.sum([row["density_histogram"] for row in heads], axis=0)
            edges, share = np.linspace(0, 1, len(counts) + 1), counts / counts.sum()
            axes.stairs(share, edges, color=colour, linestyle=line, linewidth=1.3, label=name)
            axes.stairs(share, edges, color=colour, fill=True, alpha=0.12)
    for axes in rows[0]:
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
    _label(rows, [""], types, "density (share of all possible pairs)", "share of heads\n× sentences")
    _legend(figure, rows)
    return figure


@styled
def sorted_densities(models: dict[str, dict], width: float | None = None) -> Figure:
    """Mean densities of the heads of each layer, sorted, and the density of the union of their supports.

    A row per model, a panel per attention type; line k connects the k-th densest heads of the layers.
    (Correia et al. 2019, figure 4.) ``models``: statistics by model name.
    """
    types = _types_of_statistics(models)
    figure, rows = _panels(len(models), len(types), height=1.8, width=width)
    for axes, kind, name, statistics, (colour, *_) in _each(rows, types, models):
        label = "k-th densest head of each layer"
        style = {"color": colour, "linewidth": 0.9, "marker": ".", "markersize": 4}
        style["label"] = label if len(models) == 1 else f"{name}: {label}"
        densities = by_layer(_rows(statistics, "heads", kind), "density").values()
        for line in zip(*(sorted(layer, reverse=True) for layer in densities)):
            axes.plot(line, **style)
        union = [row.get("union_density") for row in _rows(statistics, "layers", kind)]
        if union and None not in union:
            style = {"color": "black", "linestyle": "--", "linewidth": 1.2, "marker": "_", "markersize": 8}
            axes.plot(union, label="union of the heads' supports", **style)
        axes.set_ylim(0, 1.04)
        if densities:
            _layer_ticks(axes, len(densities))
    _label(rows, list(models), types, "layer", "density")
    _legend(figure, rows)
    return figure


@styled
def diversity(models: dict[str, dict], width: float | None = None) -> Figure:
    """Jensen–Shannon divergence between the heads of each layer, one panel per attention type.

    (Correia et al. 2019, figure 5, divided by log H, so that it is at most 1.) ``models``: statistics by
    name.
    """
    types = _types_of_statistics(models)
    figure, rows = _panels(1, len(types), width=width)
    for axes, kind, name, statistics, (colour, line, marker) in _each(rows, types, models):
        values = [row["diversity"] for row in _rows(statistics, "layers", kind)]
        style = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4, "lw": 1.3}
        axes.plot(values, label=name, **style)
        if values:
            _layer_ticks(axes, len(values))
    for axes in rows[0]:
        axes.set_ylim(bottom=0)
    _label(rows, [""], types, "layer", "Jensen–Shannon\ndivergence, share\nof its maximum")
    _legend(figure, rows)
    return figure


def alphas_of_heads(statistics: dict) -> dict[str, np.ndarray]:
    """The α of each head in a model's statistics, by attention type."""
    groups = by_attention(statistics["heads"])
    return {name: np.array([row["alpha"] for row in rows]) for name, rows in groups.items()}


def _rows(statistics: dict, part: str, kind: str) -> list[dict]:
    """The rows of ``heads`` or ``layers`` that are of an attention type."""
    return by_attention(statistics.get(part, [])).get(kind, [])


def _types(models) -> list[str]:
    return [kind for kind in ATTENTION_TYPES if any(kind in model for model in models)]


def _types_of_statistics(models: dict[str, dict]) -> list[str]:
    return _types([by_attention(model["heads"]) for model in models.values()])


def _each(rows: np.ndarray, types: list[str], models: dict[str, dict]) -> Iterator[tuple]:
    """Panel, attention type, model's name, its data and style; a single row of panels is of all models."""
    of_models = np.broadcast_to(rows, (len(models), len(types)))
    for row, (name, model), style in zip(of_models, models.items(), cycle(STYLES)):
        name = f" {name}" if name.startswith("_") else name  # matplotlib omits such labels from legends
        for axes, kind in zip(row, types):
            yield axes, kind, name, model, style


def sized_figure(width: float, height: float, exact: bool) -> NotebookFigure:
    """A figure of this size in inches; ``exact`` prevents :func:`save` from cropping it."""
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    figure.exact = exact
    return figure


def _panels(
    rows: int, columns: int, height: float = _PANEL, width: float | None = None
) -> tuple[Figure, np.ndarray]:
    """Panels (rows, columns), in a single column if ``width`` is too small for ``columns`` of them."""
    stacked = width is not None and width < _MIN_PANEL * columns
    lines = rows * columns if stacked else rows
    height = min(height, 1.5) if stacked else height
    figure = sized_figure(width or 1.1 * _PANEL * columns, height * lines + 0.5, width is not None)
    if stacked:
        grid = figure.subplots(lines, 1, squeeze=False).reshape(rows, columns)
        for row in grid:
            for axes in row[1:]:
                axes.sharey(row[0])
    else:
        grid = figure.subplots(rows, columns, squeeze=False, sharey="row")
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, grid


def _ramp(count: int) -> list:
    """Colours from dark to light, uniform in greyscale too; the lightest is visible on white."""
    return list(matplotlib.colormaps["viridis"](np.linspace(0, 0.85, count)))


def _layer_ticks(axes: Axes, layers: int) -> None:
    axes.set_xlim(-0.3, layers - 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(layers, 8)))


def is_wide(text: str) -> bool:
    """Whether a text has Chinese, Japanese or Korean characters, which must not be rotated."""
    return any(unicodedata.east_asian_width(character) in "WF" for character in text)


def _label(rows: np.ndarray, names: list[str], types: list[str], x_label: str, y_label: str) -> None:
    """Set titles and the labels of the outer axes; row names are shown if there are several."""
    for row, name in zip(rows, names):
        for axes, attention_type in zip(row, types):
            place = axes.get_subplotspec()
            stacked = place.get_gridspec().ncols < len(types)
            title, side = TITLES[attention_type], y_label
            if stacked:
                title = f"{name}: {title}" if len(names) > 1 else title
            elif len(names) > 1:
                side = f"{name}\n{y_label}"
            if stacked or place.is_first_row():
                axes.set_title(title, fontsize=9)
            if place.is_first_col():
                axes.set_ylabel(side, **({"rotation": 0, "ha": "right"} if is_wide(side) else {}))
            if place.is_last_row():
                axes.set_xlabel(x_label)


def _legend(figure: Figure, panels: np.ndarray) -> None:
    """One legend for all panels, with every label that occurs in any of them."""
    entries = {}
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    if entries:
        longest = 0.065 * max(map(len, entries))  # inches at this font size
        figure.legend(
            entries.values(),
            entries.keys(),
            loc="outside lower center",
            ncols=max(1, min(len(entries), 6, int(figure.get_figwidth() / (0.5 + longest)))),
            frameon=False,
        )
