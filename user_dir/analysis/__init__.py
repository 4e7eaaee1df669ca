"""Analysis of attention heads: captured attention, statistics, figures and reports.

``heads.py`` and the other commands call these functions; docs/analysis.md defines every column::

    model = read_model("softmax", "average.valid.heads.json", "alpha.jsonl", "average.valid.attention")
    figures([model])["density_histograms"]  # matplotlib's Figure, of user_dir.analysis.plots
    write_report([model], "heads.html")  # one page that needs no network
"""

from .maps import read_map, read_maps
from .report import write_report
from .results import ModelAnalysis, read_model

__all__ = ["ModelAnalysis", "read_map", "read_maps", "read_model", "write_report"]
