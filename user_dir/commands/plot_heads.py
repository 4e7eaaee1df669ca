"""Draw figures for papers: what the heads of one or several models learned.

Reads the statistics that head_stats.py writes, and draws histograms of α and of density, sorted densities by
layer, and the diversity of heads. Given an α log for each model, it also draws α over training.
"""

from __future__ import annotations

from ..command_line import file_path, option_adder, path_of
from .options import add_format_option, add_name_option, add_width_option, new_parser


def main(argv=None) -> None:
    """Read the command line, draw, write."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("statistics", file_path, "statistics of each model", nargs="+", metavar="MODEL.heads.json")
    add_name_option(parser)
    add("--alpha-log", file_path, "α log of each model, in the same order", action="append")
    add("--output", path_of, "folder for the figures (default: figures beside the first file)")
    add_format_option(parser)
    add_width_option(parser)
    args = parser.parse_args(argv)
    args.output = args.output or args.statistics[0].parent / "figures"
    if args.alpha_log and len(args.alpha_log) != len(args.statistics):
        parser.error(
            f"{len(args.alpha_log)} --alpha-log for {len(args.statistics)} models; give one for each"
        )

    from ..analysis import figures
    from ..analysis.plots import save
    from ..analysis.result_files import model_names, read_results
    from ..io import check_outputs

    names = model_names(args.statistics, args.name)
    logs = args.alpha_log or [None] * len(names)
    models = list(map(read_results, names, args.statistics, logs))
    drawn = figures(models, args.width)
    paths = [args.output / f"{stem}.{args.format}" for stem in drawn]
    check_outputs(paths, [*args.statistics, *(args.alpha_log or [])])
    for path, figure in zip(paths, drawn.values()):
        save(figure, path)
    print("\n".join(map(str, paths)))
