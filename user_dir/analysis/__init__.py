"""Analysis of attention heads: captured attention, statistics, figures and reports.

From a checkpoint to all of them::

    from user_dir.analysis import analyse, figures, head_map, write_report

    model = analyse("checkpoints/toy/alpha_entmax/average.pt")  # writes statistics and maps next to it
    model.statistics["heads"]                                   # a row for each head
    figures([model])["density_histograms"]                      # matplotlib's Figure
    head_map(model, ("encoder_self", 0, 2), sentence=3)
    write_report([model], "heads.html")                         # one page that needs no network

``read_model`` reads again what ``analyse`` or ``head_stats.py`` wrote; docs/analysis.md defines every column.
"""

from .maps import Maps
from .report import write_report
from .result_files import ModelAnalysis, read_model
from .whole_analysis import analyse, figures, head_map

__all__ = ["Maps", "ModelAnalysis", "analyse", "figures", "head_map", "read_model", "write_report"]
