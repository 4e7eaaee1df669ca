"""Measure what search finds: BLEU by beam size, empty translations that are the most probable, calibration.

The most probable translation of each sentence is found by exact depth-first search, without a length penalty.
Sentences for which it would need more than --most-expansions prefixes are counted as not completed.
"""

from __future__ import annotations

import logging

from ..command_line import option_adder, path_of, positive
from .options import add_length_penalty, inputs_of, split_parser

BEAMS = [1, 5, 20, 50, 100]


def main(argv=None) -> None:
    """Search, print a line per result, and write the file."""
    parser = split_parser(__doc__)
    add = option_adder(parser)
    add("--beams", positive, "beam sizes (default: 1 5 20 50 100)", nargs="+", default=BEAMS)
    add_length_penalty(parser, "length penalty of the beams")
    add(
        "--min-words",
        positive,
        "only sentences whose source has at least so many words (default: 1)",
        default=1,
    )
    what = "prefixes per sentence after which exact search gives up (default: 5000)"
    add("--most-expansions", positive, what, default=5000)
    parser.add_argument("--no-exact", action="store_true", help="leave out the exact search")
    what = "JSON file (default: search/CHECKPOINT-SUBSET.json beside the checkpoint)"
    add("--output", path_of, what, metavar="FILE")
    args = parser.parse_args(argv)
    output = args.output or args.path.parent / "search" / f"{args.path.stem}-{args.subset}.json"

    from .. import models  # noqa: F401  registers the model
    from ..corpora import load_corpus
    from ..io import check_output, write_json
    from ..translation.search_study import SearchStudy

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    check_output(output, inputs_of(args))
    study = SearchStudy(
        args.path,
        load_corpus(args.corpus, args.data).require_prepared(),
        args.subset,
        sentences=args.sentences,
        min_words=args.min_words,
        max_tokens=args.max_tokens,
        length_penalty=args.length_penalty,
        cpu=args.cpu,
    )

    def say(line: str) -> None:
        print(line, flush=True)

    most = args.most_expansions
    write_json(output, study.report(args.beams, say, exact=not args.no_exact, most_expansions=most))
    print(output)
