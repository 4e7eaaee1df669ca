"""Write α of every head over training as JSON, CSV and a figure; print the final values by layer and head.

Reads an α log (written by training with --alpha-log), a folder of checkpoints (checkpoint*.pt), or a single
checkpoint, for which the figure is a histogram of α.
"""

from __future__ import annotations

from .options import add_format_option, file_path, new_parser, option_adder, path_of


def main(argv=None) -> None:
    """Read the command line, read the α's, print and write."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("--path", path_of, "α log, folder of checkpoints, or checkpoint", required=True, metavar="PATH")
    what = "output; CSV and figure are written beside it"
    default = "(default: NAME.alphas.json beside the file, alphas.json in the folder)"
    add("--output", file_path, f"{what} {default}", metavar="FILE.json")
    add_format_option(parser)
    args = parser.parse_args(argv)
    beside = args.path / "alphas.json" if args.path.is_dir() else args.path.with_suffix(".alphas.json")
    output = args.output or beside
    if output.suffix != ".json":
        parser.error(f"--output {output} must end in .json; CSV and figure are written beside it")

    from ..analysis import plots
    from ..analysis.results import alpha_table, csv_text
    from ..analysis.trajectories import read_trajectories, to_json, to_rows
    from ..files import write_text

    table, drawing = output.with_suffix(".csv"), output.with_suffix(f".{args.format}")
    trajectories = read_trajectories(args.path)
    read, last = len(trajectories.updates), trajectories.updates[-1]
    if read > 1:
        figure = plots.alpha_trajectories(trajectories)
    else:
        figure = plots.alpha_histograms({args.path.name: trajectories.final()})
    write_text(output, to_json(trajectories, str(args.path)))
    write_text(table, csv_text(to_rows(trajectories)))
    plots.save(figure, drawing)
    print(alpha_table(trajectories))
    print(f"α at {read:,} of {last:,} updates: {output}, {table.name} and {drawing.name}")
