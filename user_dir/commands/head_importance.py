"""Measure how important each head is, and whether sparse heads are more important.

Masks each head in turn and measures the loss over a data split (teacher forcing, nats per token). Then prunes
heads in order of importance, of density, of α, and at random, and plots the loss. Prints the rank correlation
of importance with sparsity; writes JSON and a figure.
"""

from __future__ import annotations

import argparse

from .head_stats import opened_split
from .options import file_path, option_adder, positive, split_parser


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = split_parser(__doc__)
    add = option_adder(parser)
    what = "results (default: CHECKPOINT.SUBSET.importance.json beside the checkpoint)"
    add("--output", file_path, what, metavar="FILE.json")
    add("--figure", file_path, "figure: .svg, .pdf or .png (default: the output with .svg)")
    add("--points", positive, "points per curve (default: 12)", default=12)
    add("--random-orders", positive, "random orders (default: 5)", default=5)
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Read the command line, compute and write, print."""
    args = parse_args(argv)

    from ..analysis.results import result_file
    from ..files import check_output

    for path in filter(None, (args.output, args.figure)):
        check_output(path, [args.path])
    split = opened_split(args)

    from ..analysis.importance import importance_summary, write_importance

    output = args.output or result_file(args.path, split.name, "importance.json")
    figure = args.figure or output.with_suffix(".svg")
    report = write_importance(split, output, figure, points=args.points, random_orders=args.random_orders)
    print(importance_summary(report))
    print(f"head importance over {report['sentences']} sentences: {output} and {figure}")
