"""Measure what search finds: BLEU by beam size, empty translations that are the most probable, calibration.

The most probable translation of each sentence is found by exact depth-first search, without a length penalty.
Sentences for which it would need more than --most-expansions prefixes are counted as not completed.
"""

from __future__ import annotations

import argparse
import logging

from ..command_line import length_penalty, path_of, positive
from .options import split_parser


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = split_parser(__doc__)
    parser.add_argument(
        "--beams",
        type=positive,
        nargs="+",
        default=[1, 5, 20, 50, 100],
        metavar="N",
        help="beam sizes (default: 1 5 20 50 100)",
    )
    parser.add_argument(
        "--lenpen",
        type=length_penalty,
        default=1.0,
        metavar="X",
        help="length penalty of the beams (default: 1, none)",
    )
    parser.add_argument(
        "--min-words",
        type=positive,
        default=1,
        metavar="N",
        help="only sentences whose source has at least so many words (default: 1)",
    )
    parser.add_argument(
        "--most-expansions",
        type=positive,
        default=5000,
        metavar="N",
        help="prefixes per sentence after which exact search gives up (default: 5000)",
    )
    parser.add_argument("--no-exact", action="store_true", help="leave out the exact search")
    parser.add_argument(
        "--output",
        type=path_of,
        metavar="FILE",
        help="JSON file (default: search/CHECKPOINT-SUBSET.json beside the checkpoint)",
    )
    args = parser.parse_args(argv)
    args.output = args.output or args.path.parent / "search" / f"{args.path.stem}-{args.subset}.json"
    return args


def main(argv=None) -> None:
    """Search, print a line per result, and write the file."""
    args = parse_args(argv)

    from .. import models  # noqa: F401  registers the model
    from ..corpora import load_corpus
    from ..io import check_output, write_json
    from ..translation.search_study import SearchStudy

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    check_output(args.output, [args.path])
    corpus = load_corpus(args.corpus, args.data).require_prepared()
    check_output(args.output, corpus.kept)
    study = SearchStudy(
        args.path,
        corpus,
        args.subset,
        sentences=args.sentences,
        min_words=args.min_words,
        max_tokens=args.max_tokens,
        length_penalty=args.lenpen,
        cpu=args.cpu,
    )
    report = study.report(
        args.beams,
        lambda line: print(line, flush=True),
        exact=not args.no_exact,
        most_expansions=args.most_expansions,
    )
    write_json(args.output, report)
    print(args.output)
