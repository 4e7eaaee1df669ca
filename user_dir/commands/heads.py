"""Measure what the heads of a model learned: statistics of every head over a split, with teacher forcing.

Prints α, density and roles; writes all statistics as JSON, and those of heads as CSV beside it. The JSON
defines each statistic under "measures"; so does docs/analysis.md.

With --importance it measures instead how important each head is, and whether sparse heads are more important:
masks each head in turn and measures the loss over the split (nats per token). Then it prunes heads in order
of importance, of density, of α, and at random, and plots the loss. Prints the rank correlation of importance
with sparsity; writes JSON and a figure.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .options import Parser, plain_name, positive

BESIDE = Path("beside the checkpoint")  # the value of --dump-attention if no folder is given


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_split_options()
    default = "CHECKPOINT.SUBSET.heads.json, or .importance.json, beside the checkpoint"
    what = f"results; a CSV of the statistics, or a figure, is written beside it (default: {default})"
    parser.add("--output", Path, what, metavar="FILE.json")
    what = "of a language model: the language of the corpus to analyse it on (default: the second)"
    parser.add("--language", plain_name, what)
    default = "CHECKPOINT.SUBSET.attention beside the checkpoint, where report.py looks for them"
    what = f"also write attention maps to a folder (default: {default})"
    parser.add("--dump-attention", Path, what, nargs="?", const=BESIDE, metavar="DIR")
    what = "write the maps of the first N sentences (default: 50)"
    parser.add("--dump-sentences", positive, what, default=50)
    parser.add_switch("--importance", "measure the importance of heads instead")
    args = parser.parse_args(argv)
    if args.output and args.output.suffix != ".json":
        parser.error(f"--output {args.output} must end in .json; a CSV or a figure is written beside it")
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

    split = opened_split(args)
    kind = "importance" if args.importance else "heads"
    output = args.output or result_file(args.path, split.name, f"{kind}.json")
    check_output(output, [args.path])
    if args.importance:
        from ..analysis.importance import importance_summary, write_importance

        report = write_importance(split, output)
        print(importance_summary(report))
        figure = output.with_suffix(".svg")
        print(f"head importance over {report['sentences']} sentences: {output} and {figure}")
        return

    from ..analysis.measuring import statistics_summary, write_statistics

    maps = args.dump_attention
    if maps == BESIDE:
        maps = result_file(args.path, split.name, "attention")
    report = write_statistics(split, output, maps=maps, map_sentences=args.dump_sentences)
    print(statistics_summary(report, output, maps))
