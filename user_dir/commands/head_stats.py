"""Measure what the heads of a model learned: statistics of every head over a split, with teacher forcing.

Prints α, density and roles; writes all statistics as JSON, and those of heads as CSV beside it. The JSON
defines each statistic under "measures"; so does docs/analysis.md.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .options import file_path, option_adder, path_of, plain_name, positive, split_parser

BESIDE = Path("beside the checkpoint")  # of --dump-attention without a folder


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = split_parser(__doc__)
    add = option_adder(parser)
    what = "statistics; the CSV is written beside it"
    default = "(default: CHECKPOINT.SUBSET.heads.json beside the checkpoint)"
    add("--output", file_path, f"{what} {default}", metavar="FILE.json")
    what = "of a language model: the language of the corpus to analyse it on (default: the second)"
    add("--language", plain_name, what)
    what = "minimum for a head to be assigned a role, such as 'previous position=0.9'; may be repeated"
    add("--threshold", str, what, metavar="ROLE=VALUE", action="append", default=[])
    default = "CHECKPOINT.SUBSET.attention beside the checkpoint, where report.py looks for them"
    what = f"also write attention maps to a folder (default: {default})"
    add("--dump-attention", path_of, what, nargs="?", const=BESIDE, metavar="DIR")
    add("--dump-sentences", positive, "write the maps of the first N sentences (default: 50)", default=50)
    args = parser.parse_args(argv)
    if args.output and args.output.suffix != ".json":
        parser.error(f"--output {args.output} must end in .json; the CSV is written beside it")
    return args


def opened_split(args: argparse.Namespace):
    """Open the split that the arguments name, with fairseq's messages off."""
    from ..analysis.capture import open_split

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    names = ("data", "sentences", "max_tokens", "language", "cpu")
    options = {name: getattr(args, name, None) for name in names}
    return open_split(args.path, args.corpus, args.subset, **options)


def main(argv=None) -> None:
    """Read the command line, compute and write, print."""
    args = parse_args(argv)

    from ..analysis.results import result_file
    from ..files import check_output

    if args.output:
        check_output(args.output, [args.path])
    split = opened_split(args)

    from ..analysis.measuring import statistics_summary, write_statistics

    output, maps = args.output or result_file(args.path, split.name, "heads.json"), args.dump_attention
    if maps == BESIDE:
        maps = result_file(args.path, split.name, "attention")
    report = write_statistics(
        split,
        output,
        thresholds=args.threshold,
        maps=maps,
        map_sentences=args.dump_sentences,
    )
    print(statistics_summary(report, output, maps))
