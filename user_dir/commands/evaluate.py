"""Translate the test sets of a corpus and score the detokenised translations with sacrebleu."""

from __future__ import annotations

import argparse
import logging

from ..command_line import length_penalty, path_of, plain_name, positive
from .options import add_length_options, add_model_options, add_penalty_option, new_parser


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add_model_options(parser)
    parser.add_argument(
        "--subset",
        type=plain_name,
        action="append",
        metavar="NAME",
        help="valid or the name of a test set; may be repeated (default: all test sets, or valid)",
    )
    parser.add_argument("--test-set", dest="subset", type=plain_name, action="append", help=argparse.SUPPRESS)
    parser.add_argument(
        "--output",
        type=path_of,
        metavar="DIR",
        help="folder for scores and translations (default: evaluation/CHECKPOINT beside the checkpoint)",
    )
    parser.add_argument("--beam", type=positive, default=5, metavar="N", help="beam size (default: 5)")
    parser.add_argument(
        "--lenpen", type=length_penalty, default=1.0, metavar="X", help="length penalty (default: 1, none)"
    )
    add_length_options(parser)
    add_penalty_option(parser)
    parser.add_argument(
        "--tokenize",
        metavar="NAME",
        help="sacrebleu's tokenizer for BLEU (default: that of the language)",
    )
    parser.add_argument(
        "--skip-long",
        action="store_true",
        help="leave out sentences that are longer than the model's limit, and list them",
    )
    parser.add_argument(
        "--truncate-source",
        action="store_true",
        help="truncate sources that are longer than the model's limit, and list them",
    )
    parser.add_argument("--int8", action="store_true", help="translate with 8-bit integers, on the CPU")
    parser.add_argument("--verbose", action="store_true", help="also show fairseq's messages")
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Evaluate, and print a line per test set."""
    args = parse_args(argv)

    from .. import models  # noqa: F401  registers the model
    from ..corpora import load_corpus
    from ..guards.long_sentences import first_few
    from ..io import check_output
    from ..translation.evaluation import evaluate
    from ..translation.limits import Limit

    if not args.verbose:
        logging.getLogger("fairseq").setLevel(logging.WARNING)
    corpus = load_corpus(args.corpus, args.data).require_prepared()
    output = args.output or args.path.parent / "evaluation" / args.path.stem
    # Translations are named like the corpus's own files, which would be lost.
    check_output(output / "scores.json", [corpus.raw, *corpus.written])
    evaluations = evaluate(
        args.path,
        corpus,
        args.subset or corpus.test_sets or ["valid"],
        output,
        beam=args.beam,
        length_penalty=args.lenpen,
        max_len_a=args.max_len_a,
        max_len_b=args.max_len_b,
        new_piece_penalty=args.new_piece_penalty,
        max_tokens=args.max_tokens,
        tokenize=args.tokenize,
        skip_long=args.skip_long,
        truncate_source=args.truncate_source,
        cpu=args.cpu,
        int8=args.int8,
    )
    for evaluation in evaluations:
        scores = evaluation.scores
        print(f"{scores['test_set']}  {scores['direction']}  {scores['sentences']} sentences")
        for key, told in (("left_out_lines", "left out"), ("truncated_lines", "cut")):
            if scores.get(key):
                shown = first_few([line - 1 for line in scores[key]])
                print(f"  {told}, as longer than the model's limit: {len(scores[key])} ({shown})")
        if scores["blank_lines"]:
            shown = first_few([line - 1 for line in scores["blank_lines"]])
            print(f"  blank sources, with a blank translation: {len(scores['blank_lines'])} ({shown})")
        if scores["unfinished_lines"]:
            lines = scores["unfinished_lines"]
            limit = Limit(scores["max_len_a"], scores["max_len_b"])
            shown = first_few([line - 1 for line in lines])
            print(f"  translations that reached {limit}, and may lack their end: {len(lines)} ({shown})")
        print(f"  references: {scores['references']}")
        print(f"  BLEU {scores['bleu']:.2f}  {scores['bleu_signature']}")
        if "ceiling" in scores:
            print(f"    of at most {scores['ceiling']:.2f}: that of the references, through the pieces")
        print(f"  chrF {scores['chrf']:.2f}  {scores['chrf_signature']}")
        print(f"  TER  {scores['ter']:.2f}  {scores['ter_signature']}")
        if "uncorrected" in scores:
            before, changes = scores["uncorrected"], scores["changes"]
            shown = (f"{label} {before[label.lower()]:.2f}" for label in ("BLEU", "chrF", "TER"))
            print("  uncorrected: " + "  ".join(shown))
            print("  sentences: " + ", ".join(f"{changes[key]} {key.replace('_', ' ')}" for key in changes))
        if "tokenized_bleu" in scores:
            print(f"  tokenized BLEU {scores['tokenized_bleu']:.2f}  {scores['tokenized_bleu_signature']}")
            print(f"    on tokens of {scores['tokenized_bleu_tokens']}: not to be compared with BLEU above")
        print(f"  {output / scores['test_set']}.json", flush=True)
