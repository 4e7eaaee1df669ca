r"""Compare systems on one test set by BLEU, chrF or TER, each against the first.

    python scripts/compare.py --margin 0.5 --system softmax RUNS/softmax-seed*/evaluation/test.json \
        --system α-entmax RUNS/alpha_entmax-seed*/evaluation/test.json

A system's files are its seeds, in order: evaluations that evaluate.py wrote, or translations in plain text,
then with --ref. Prints mean and standard deviation over the seeds, and for each difference from the first
system a 95 % interval and a p-value over seeds and sentences together. With --margin, each system is said to
be equivalent (the interval lies inside the margin), higher, lower or, where none of these is shown,
inconclusive. The last column is sacrebleu's paired test, which asks only whether these models would differ on
other sentences. All p are adjusted for the number of comparisons by Holm's method.
"""

from __future__ import annotations

import argparse
import logging

from .options import (
    add_output_option,
    add_system_argument,
    file_path,
    new_parser,
    option_adder,
    positive,
    real,
)

SAMPLES = {"bs": 1000, "ar": 10000}


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add_system_argument(parser, "FILE", "give at least two systems, the baseline first")
    add("--ref", file_path, "references (default: those of the evaluations)", nargs="+", default=[])
    what = "difference too small to matter, chosen before seeing scores: say which systems are equivalent"
    add("--margin", real(0.001, 1000), what, metavar="POINTS")
    what, names = "BLEU, chrF, or TER, of which less is better (default: BLEU chrF)", ("BLEU", "chrF", "TER")
    add("--metrics", str, what, nargs="+", choices=names, default=["BLEU", "chrF"], metavar="NAME")
    what = "bootstrap or approximate randomisation (default: bs)"
    add("--test", str, what, choices=tuple(SAMPLES), default="bs", metavar=None)
    add("--samples", positive, "resamples or trials (default: 1000 for bs, 10000 for ar)")
    parser.add_argument("--lowercase", action="store_true", help="ignore case (default: as evaluated)")
    what = "sacrebleu's tokenizer for BLEU (default: as evaluated, or that of the text)"
    add("--tokenize", str, what, metavar="NAME")
    add_output_option(parser)
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Read, test, print, write."""
    args = parse_args(argv)

    from sacrebleu.metrics import CHRF

    from ..files import check_output, write_json, write_text
    from ..translation.compare import compare, comparison_tables, read_systems
    from ..translation.scoring import make_bleu, make_ter

    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # not a warning per resample about the same lines
    outputs = [args.output, args.output.with_suffix(".json")] if args.output else []
    for path in outputs:
        check_output(path, [*(file for _, files in args.system for file in files), *args.ref])
    systems, test_set = read_systems(args.system, args.ref)
    language, references = test_set.language, test_set.references
    lower_case, tokenize = args.lowercase or test_set.lowercase, args.tokenize or test_set.tokenize
    makers = {
        "BLEU": lambda: make_bleu(language, tokenize, lower_case, references[0]),
        "chrF": lambda: CHRF(lowercase=lower_case),
        "TER": lambda: make_ter(language, lower_case, references[0]),
    }
    metrics = {name: makers[name]() for name in args.metrics}
    report = compare(systems, references, metrics, args.test, args.samples or SAMPLES[args.test], args.margin)
    tables = comparison_tables(report)
    if args.output:
        write_text(outputs[0], tables + "\n")
        write_json(outputs[1], report)
    print(tables)
