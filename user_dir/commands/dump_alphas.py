"""Write α of every head over training as JSON, CSV and a figure; print the final values by layer and head.

Reads an α log, which training writes with --alpha-log.
"""

from __future__ import annotations

from .options import add_format_option, file_path, new_parser, option_adder


def main(argv=None) -> None:
    """Read the command line, read the α's, print and write."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add("--path", file_path, "α log", required=True, metavar="alpha.jsonl")
    what = "output; CSV and figure are written beside it (default: NAME.alphas.json beside the log)"
    add("--output", file_path, what, metavar="FILE.json")
    add_format_option(parser)
    args = parser.parse_args(argv)
    output = args.output or args.path.with_suffix(".alphas.json")
    if output.suffix != ".json":
        parser.error(f"--output {output} must end in .json; CSV and figure are written beside it")

    from ..analysis.plots import alpha_trajectories, save
    from ..analysis.results import alpha_table, csv_text
    from ..analysis.trajectories import read_trajectories
    from ..files import write_json, write_text

    table, drawing = output.with_suffix(".csv"), output.with_suffix(f".{args.format}")
    trajectories = read_trajectories(args.path)
    updates = trajectories.updates
    heads = [
        {"attention": kind, "layer": layer, "head": head, "alpha": alphas.round(6).tolist()}
        for kind, layer, head, alphas in trajectories.heads()
    ]
    write_json(output, {"source": str(args.path), "updates": updates, "heads": heads})
    write_text(table, csv_text(trajectories.rows()))
    save(alpha_trajectories(trajectories), drawing)
    print(alpha_table(trajectories))
    print(f"α at {len(updates):,} of {updates[-1]:,} updates: {output}, {table.name} and {drawing.name}")
