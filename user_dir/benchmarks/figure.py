"""The figure of attention against PyTorch's, by length."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ..analysis.plots import STYLES, sized_figure, styled
from .against_sdpa import MEASURES, OURS, OURS_15, SDPA, geometric_mean, ratios

_LABELS = {OURS: "α-entmax, a learned α per head", OURS_15: "1.5-entmax"}


@styled
def time_by_length(rows: list[dict]) -> Figure:
    """Time of our attention as a multiple of SDPA's over length: a panel each for forward and training.

    Args:
        rows: from :func:`.against_sdpa.compare`; full and causal attention are averaged geometrically.
    """
    figure = sized_figure(6.0, 2.3, exact=True)
    for axes, measure in zip(figure.subplots(1, len(MEASURES), sharey=True), MEASURES):
        axes.axhline(1, color="0.4", linewidth=0.8)
        for (name, label), (colour, line, marker) in zip(_LABELS.items(), STYLES):
            found = ratios(rows, name, SDPA, measure)
            lengths = sorted({length for length, _ in found})
            means = [
                geometric_mean([ratio for (of, _), ratio in found.items() if of == length])
                for length in lengths
            ]
            axes.plot(lengths, means, color=colour, linestyle=line, marker=marker, markersize=4, label=label)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(lengths))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set(title=measure, xlabel="length of the sequences", ylim=(0, 1.3))
        axes.text(lengths[-1], 1.03, "softmax (PyTorch)", color="0.3", ha="right")
    figure.axes[0].set_ylabel("time, as a multiple")
    figure.axes[0].legend(loc="lower left", frameon=False)
    return figure
