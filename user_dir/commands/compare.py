r"""Compare systems: by their scores on one test set, or by what their heads learned, over seeds.

    python scripts/compare.py --margin 0.5 --system softmax RUNS/softmax-seed*/evaluation/test.json \
        --system α-entmax RUNS/alpha_entmax-seed*/evaluation/test.json

A system has one file per seed, in order: an evaluation that evaluate.py wrote, or translations in plain text,
which need --ref. Prints mean and standard deviation of BLEU, chrF or TER over the seeds, and for each
difference from the first system a 95 % interval and a p-value over seeds and sentences together. With
--margin, each system is said to be equivalent (the interval lies inside the margin), higher, lower or, where
none of these is shown, inconclusive. The last column is sacrebleu's paired test, which asks only whether
these models would differ on other sentences. All p are adjusted for the number of comparisons by Holm's
method.

    python scripts/compare.py --system softmax RUNS/softmax-seed*/average.heads.json \
        --system α-entmax RUNS/alpha_entmax-seed*/average.heads.json

Given statistics that heads.py wrote, it prints a table of α, density and diversity instead.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .options import Parser, positive, real

SAMPLES = {"bs": 1000, "ar": 10000}


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    what = "name of a system, and a file for each of its seeds; may be repeated, the baseline first"
    parser.add("--system", str, what, nargs="+", action="append", required=True, metavar=("NAME", "FILE"))
    what = "also write the tables to this file, and all figures to FILE.json (default: print only)"
    parser.add("--output", Path, what, metavar="FILE.md")
    parser.add("--ref", Path, "references (default: those of the evaluations)", nargs="+", default=[])
    what = "difference too small to matter, chosen before seeing scores: say which systems are equivalent"
    parser.add("--margin", real(0.001, 1000), what, metavar="POINTS")
    what, names = "BLEU, chrF, or TER, of which less is better (default: BLEU chrF)", ("BLEU", "chrF", "TER")
    metrics = {"nargs": "+", "choices": names, "default": ["BLEU", "chrF"], "metavar": "NAME"}
    parser.add("--metrics", str, what, **metrics)
    what = "bootstrap or approximate randomisation (default: bs)"
    parser.add("--test", str, what, choices=tuple(SAMPLES), default="bs", metavar=None)
    parser.add("--samples", positive, "resamples or trials (default: 1000 for bs, 10000 for ar)")
    parser.add_switch("--lowercase", "ignore case (default: as evaluated)")
    what = "sacrebleu's tokenizer for BLEU (default: as evaluated, or that of the text)"
    parser.add("--tokenize", str, what, metavar="NAME")
    args = parser.parse_args(argv)
    args.system = [(name, list(map(Path, files))) for name, *files in args.system]
    if len(dict(args.system)) < len(args.system) or not all(files for _, files in args.system):
        parser.error("--system: give a name of its own, and then a file for each seed")
    return args


def main(argv=None) -> None:
    """Read, compare, print, write."""
    args = parse_args(argv)

    from ..files import check_output, write_json, write_text

    files = [path for _, paths in args.system for path in paths]
    outputs = [args.output, args.output.with_suffix(".json")] if args.output else []
    for path in outputs:
        check_output(path, [*files, *args.ref])
    of_heads = any(".heads" in path.suffixes for path in files)
    tables, report = compare_heads(args.system) if of_heads else compare_scores(args)
    if args.output:
        write_text(outputs[0], tables + "\n")
        write_json(outputs[1], report)
    print(tables)


def compare_scores(args: argparse.Namespace) -> tuple[str, dict]:
    """Tables of scores and tests, and their content for JSON."""
    from sacrebleu.metrics import CHRF

    from ..translation.compare import compare, comparison_tables, read_systems
    from ..translation.scoring import make_bleu, make_ter

    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # not a warning per resample about the same lines
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
    return comparison_tables(report), report


def compare_heads(systems: list[tuple[str, list[Path]]]) -> tuple[str, dict]:
    """A table of the heads of systems, and its content for JSON."""
    from ..analysis.results import check_same_split, comparison_table, read_statistics, split_of, summary

    reports = {path: read_statistics(path) for _, paths in systems for path in paths}
    check_same_split({str(path): split_of(report) for path, report in reports.items()})
    summaries = {name: [summary(reports[path]) for path in paths] for name, paths in systems}
    files = {name: list(map(str, paths)) for name, paths in systems}
    return comparison_table(summaries), {"files": files, "systems": summaries}
