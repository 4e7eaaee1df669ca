"""Extract word alignments from context attention, and score them against gold alignments.

Aligns each target word of a data split with the source word that it attends to most: for each head, for the
mean over the heads of each layer, and for the mean over all heads. Words are separated by spaces. Writes a
Pharaoh file for each (one line per sentence; i-j are source and target word, counting from 0), and a JSON
file with all results.
"""

from __future__ import annotations

from pathlib import Path

from .heads import opened_split
from .options import Parser


def main(argv=None) -> None:
    """Read the command line, align, print and write."""
    parser = Parser(__doc__)
    parser.add_split_options()
    what = "folder (default: alignment/CHECKPOINT-SUBSET beside the checkpoint)"
    parser.add("--output", Path, what, metavar="DIR")
    what = "align a target word at the step that predicts it (output, the default) or reads it (input)"
    parser.add("--query", str, what, choices=("output", "input"), default="output", metavar=None)
    parser.add("--gold", Path, "gold alignments, a line per sentence: i-j sure, i?j possible, from 0")
    args = parser.parse_args(argv)
    split = opened_split(args)
    output = args.output or args.path.parent / "alignment" / f"{args.path.stem}-{split.name}"

    from ..analysis.alignment import alignment_summary, read_gold, write_alignment

    gold = read_gold(args.gold, args.sentences) if args.gold else None
    report = write_alignment(split, output, gold, args.query)
    print(alignment_summary(report["candidates"]))
    if gold is not None and report["best_head"]:
        print(f"best head: {report['best_head']['name']}, AER {report['best_head']['aer']:.3f}")
    print(f"alignments of {report['sentences']} sentences: {output}")
