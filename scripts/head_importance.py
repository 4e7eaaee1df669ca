#!/usr/bin/env python3
"""How much each head matters, and whether sparse heads matter more.

Masks each head in turn and takes the loss over a data split (teacher forcing, nats per token); then prunes
ever more heads, in the order of importance, of density, of α, and at random, and draws the loss. Prints the
rank correlation of importance with sparsity; writes JSON and a figure.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _split import open_split, positive, rounded, split_parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = split_parser(__doc__)
    parser.add_argument(
        "--output", type=Path, metavar="FILE.json", help="default: CHECKPOINT with .importance.json"
    )
    parser.add_argument(
        "--figure",
        type=Path,
        metavar="FILE",
        help="svg, pdf or png; default: the output with .svg",
    )
    parser.add_argument(
        "--points", type=positive, default=12, metavar="N", help="points of each curve (default: 12)"
    )
    parser.add_argument(
        "--random-orders", type=positive, default=5, metavar="N", help="orders by chance (default: 5)"
    )
    parser.add_argument(
        "--bleu", action="store_true", help="also translate with each head masked in turn: takes long"
    )
    parser.add_argument(
        "--beam", type=positive, default=5, metavar="N", help="beam size for --bleu (default: 5)"
    )
    args = parser.parse_args(argv)
    args.output = args.output or args.path.with_suffix(".importance.json")
    if args.output.suffix != ".json":
        parser.error(f"--output {args.output} must end in .json")
    args.figure = args.figure or args.output.with_suffix(".svg")
    return args


def summary(report: dict, shown: int = 5) -> str:
    """The heads that matter most and least, and the correlations, as text."""
    from user_dir.analysis.tables import head_name
    from user_dir.tables import significance

    ranked = sorted(report["heads"], key=lambda row: -row["importance"])
    lines = [f"loss {report['loss']:.4f} nats per token; without one head it rises by"]
    rest = len(ranked) - 2 * shown
    for i, row in enumerate(ranked):
        if i < shown or i >= len(ranked) - shown:
            bleu = f"  BLEU {row['bleu']:.2f}" if "bleu" in row else ""
            lines.append(
                f"  {row['importance']:+.4f}  {head_name(row)}"
                f"  (alpha {row['alpha']:.3f}, density {row['density']:.3f}){bleu}"
            )
        elif i == shown:
            lines.append(f"  … {rest} more")
    lines.append("rank correlation (Spearman) of importance with")
    for row in report["correlations"]:
        value = "not defined"
        if row["spearman"] is not None:
            value = f"{row['spearman']:+.3f}  p {significance(row['p_value'])}"
        lines.append(f"  {row['measure']:<8} {row['attention']:<16} {row['heads']:3} heads  {value}")
    return "\n".join(lines)


def main(argv=None) -> None:
    """Read the command line, compute, print, draw and write."""
    args = parse_args(argv)
    split = open_split(args)

    from user_dir.analysis import plots
    from user_dir.analysis.bleu_importance import bleu_without_each_head
    from user_dir.analysis.capture import batches
    from user_dir.analysis.importance import head_importance
    from user_dir.analysis.plots_importance import importance_figure
    from user_dir.analysis.statistics import head_statistics
    from user_dir.analysis.words import Pieces
    from user_dir.errors import UserError
    from user_dir.io import write_json
    from user_dir.translation.scored_split import ScoredSplit

    def samples(description: str):
        return batches(
            split.model,
            split.task,
            split.subset,
            max_tokens=args.max_tokens,
            sentences=args.sentences,
            description=description,
        )

    if args.figure.suffix.lstrip(".") not in plots.FORMATS:
        raise UserError(f"--figure {args.figure} must end in .{', .'.join(plots.FORMATS)}")
    task = split.task
    padding = task.source_dictionary.pad()
    source = Pieces(task.source_dictionary, split.report["source_lang"])
    target = Pieces(task.target_dictionary, split.report["target_lang"])
    statistics = head_statistics(split.model, samples("statistics"), source, target, padding)
    found = head_importance(
        split.model, samples, padding, statistics["heads"], args.points, args.random_orders
    )
    report = {**split.report, "sentences": statistics["sentences"], **found}
    if args.bleu:
        direction = split.report["source_lang"], split.report["target_lang"]
        scored = ScoredSplit(split.corpus, split.subset, direction)
        sizes = {"beam": args.beam, "max_tokens": args.max_tokens, "sentences": args.sentences}
        report.update(bleu_without_each_head(split.model, task, scored, report["heads"], **sizes))
    report = rounded(report)
    plots.save(importance_figure(report), args.figure)
    write_json(args.output, report)
    print(summary(report))
    print(f"head importance over {report['sentences']} sentences: {args.output} and {args.figure}")


if __name__ == "__main__":
    main()
