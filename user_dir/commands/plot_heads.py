"""Draw figures for papers: what the heads of one or several models learned.

Reads the statistics that head_stats.py writes, and draws histograms of α and of density, sorted densities by
layer, and the diversity of heads. Given an α log for each model, it also draws α over training.
"""

from __future__ import annotations

from .options import (
    add_format_option,
    add_name_option,
    file_path,
    new_parser,
    option_adder,
    path_of,
)


def main(argv=None) -> None:
    """Read the command line, draw, write."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("statistics", file_path, "statistics of each model", nargs="+", metavar="MODEL.heads.json")
    add_name_option(parser)
    add("--alpha-log", file_path, "α log of each model, in the same order", action="append")
    add("--output", path_of, "folder for the figures (default: figures beside the first file)")
    add_format_option(parser)
    args = parser.parse_args(argv)
    folder = args.output or args.statistics[0].parent / "figures"
    logs = args.alpha_log or [None] * len(args.statistics)
    if len(logs) != len(args.statistics):
        parser.error(f"{len(logs)} --alpha-log for {len(args.statistics)} models; give one for each")

    from ..analysis.plots import figures, save
    from ..analysis.results import check_models, model_names, read_model

    models = list(map(read_model, model_names(args.statistics, args.name), args.statistics, logs))
    check_models(models)
    for name, figure in figures(models).items():
        path = folder / f"{name}.{args.format}"
        save(figure, path)
        print(path)
