#!/usr/bin/env python3
"""What the heads of a model learned: α and mean density of every head over a data split.

Density is the share of the possible pairs of query and key to which a head gives any weight at all, with
teacher forcing. Prints tables; writes the same as JSON and CSV.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import logging
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main(argv=None) -> None:
    """Read the command line, compute, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, metavar="CHECKPOINT")
    parser.add_argument("--corpus", required=True, help="a prepared corpus, for instance multi30k")
    parser.add_argument("--subset", default="valid", help="valid (default), train, or a test set's name")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the corpora (default: data/)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE.json",
        help="default: CHECKPOINT with .heads.json; the CSV is beside it",
    )
    args = parser.parse_args(argv)
    output = args.output or args.path.with_suffix(".heads.json")
    if output.suffix != ".json":
        parser.error(f"--output {output} must end in .json; the CSV is written beside it")

    import user_dir  # noqa: F401  registers the model
    from user_dir.analysis.capture import load_model
    from user_dir.analysis.statistics import head_statistics, head_table
    from user_dir.corpora import load_corpus
    from user_dir.files import write_text

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")
    corpus = load_corpus(args.corpus, args.data).require_prepared()
    subset = corpus.subset(args.subset)
    model, task = load_model(args.path, corpus)
    report = {"checkpoint": str(args.path), "corpus": corpus.name, "subset": args.subset}
    report.update(head_statistics(model, task, subset))

    print(head_table(report["heads"]))
    table = io.StringIO()
    writer = csv.DictWriter(table, fieldnames=list(report["heads"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(report["heads"])
    write_text(output, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    write_text(output.with_suffix(".csv"), table.getvalue())
    print(f"head report over {report['sentences']} sentences: {output} and {output.with_suffix('.csv').name}")


if __name__ == "__main__":
    main()
