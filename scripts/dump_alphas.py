#!/usr/bin/env python3
"""α of every head over training, as CSV, JSON and a figure; prints the final values by layer and head.

Reads an α log (what --alpha-log wrote), a folder of checkpoints (checkpoint*.pt), or one checkpoint, whose
figure is the histogram of its α's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from user_dir.command_line import file_path, path_of, run_command


def main(argv=None) -> None:
    """Read the command line, read the α's, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=path_of, help="α log, folder of checkpoints, or checkpoint")
    parser.add_argument(
        "--output",
        type=file_path,
        metavar="FILE.json",
        help="default: SOURCE with .alphas.json, or in the folder alphas.json; CSV and figure are beside it",
    )
    parser.add_argument("--format", choices=("svg", "pdf", "png"), default="svg", help="of the figure")
    args = parser.parse_args(argv)
    beside = args.source / "alphas.json" if args.source.is_dir() else args.source.with_suffix(".alphas.json")
    output = args.output or beside
    if output.suffix != ".json":
        parser.error(f"--output {output} must end in .json; CSV and figure are written beside it")

    from user_dir.analysis import plots
    from user_dir.analysis.trajectories import alpha_table, read_trajectories, to_csv, to_json
    from user_dir.io import check_output, write_text

    check_output(output)
    trajectories = read_trajectories(args.source)
    if len(trajectories.updates) > 1:
        figure = plots.alpha_trajectories(trajectories)
    else:
        figure = plots.alpha_histograms({args.source.name: trajectories.final()})
    table, drawing = output.with_suffix(".csv"), output.with_suffix(f".{args.format}")
    write_text(output, to_json(trajectories, str(args.source)))
    write_text(table, to_csv(trajectories))
    plots.save(figure, drawing)
    print(alpha_table(trajectories))
    print(f"{len(trajectories.updates)} updates: {output}, {table.name} and {drawing.name}")


if __name__ == "__main__":
    run_command(main)
