"""Translate the test sets of a corpus and score the detokenised translations with sacrebleu."""

from __future__ import annotations

import argparse
import dataclasses
import logging

from ..command_line import option_adder, path_of, plain_name
from .options import add_model_options, add_search_options, new_parser

_CASE = {
    "ignored": "ignored in all scores, because the pieces have no capitals",
    "from_translation": "copied from the machine translation, because the pieces have no capitals",
}


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    add = option_adder(parser)
    add_model_options(parser, named=False)
    what = "valid or the name of a test set; may be repeated (default: all test sets, or valid)"
    add("--subset", plain_name, what, action="append")
    add("--test-set", plain_name, argparse.SUPPRESS, dest="subset", action="append")
    what = "folder for scores and translations (default: evaluation/CHECKPOINT beside the checkpoint)"
    add("--output", path_of, what)
    add_search_options(parser, chooses=True)
    what = "also score with COMET: folder of a model that you have, with hparams.yaml and checkpoints/"
    add("--comet", path_of, what)
    add("--tokenize", str, "sacrebleu's tokenizer for BLEU (default: that of the language)", metavar="NAME")
    for flag, what in (
        ("--skip-long", "leave out sentences that are longer than the model's limit, and list them"),
        ("--truncate-source", "truncate sources that are longer than the model's limit, and list them"),
        ("--verbose", "also show fairseq's messages"),
    ):
        parser.add_argument(flag, action="store_true", help=what)
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Evaluate, and print the scores of each test set."""
    args = parse_args(argv)

    from .. import models  # noqa: F401  registers the model
    from ..checkpoints import load_checkpoint
    from ..corpora import load_corpus
    from ..io import check_output
    from ..translation.direction import corpus_of
    from ..translation.evaluation import Options, evaluate

    if not args.verbose:
        logging.getLogger("fairseq").setLevel(logging.WARNING)
    if args.corpus:
        corpus = load_corpus(args.corpus, args.data).require_prepared()
    else:
        corpus = corpus_of(load_checkpoint(args.path), args.path, data=args.data)
    output = args.output or args.path.parent / "evaluation" / args.path.stem
    # Translations are named like the corpus's own files, which would be lost.
    check_output(output / "scores.json", [corpus.raw, *corpus.written])
    options = Options(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Options)})
    test_sets = args.subset or corpus.test_sets or ["valid"]
    for evaluation in evaluate(args.path, corpus, test_sets, output, options):
        print(described(evaluation.scores))
        print(f"  {output / evaluation.scores['test_set']}.json", flush=True)


def described(scores: dict) -> str:
    """The scores of a test set, and what became of its unusual sentences, in lines."""
    from ..errors import first_few
    from ..translation.limits import Limit

    lines = [f"{scores['test_set']}  {scores['direction']}  {scores['sentences']} sentences"]
    limit = Limit(scores["max_len_a"], scores["max_len_b"])
    for key, told in (
        ("left_out_lines", "left out, as longer than the model's limit"),
        ("truncated_lines", "cut, as longer than the model's limit"),
        ("blank_lines", "blank sources, with a blank translation"),
        ("unfinished_lines", f"translations that reached {limit}, and may lack their end"),
    ):
        if numbers := scores.get(key):
            lines.append(f"  {told}: {len(numbers)} ({first_few([line - 1 for line in numbers])})")
    lines.append(f"  references: {scores['references']}")
    if "case" in scores:
        lines.append(f"  case: {_CASE[scores['case']]}")
    lines.append(f"  BLEU {scores['bleu']:.2f}  {scores['bleu_signature']}")
    if "ceiling" in scores:
        lines.append(f"    of at most {scores['ceiling']:.2f}: that of the references, through the pieces")
    lines.append(f"  chrF {scores['chrf']:.2f}  {scores['chrf_signature']}")
    lines.append(f"  TER  {scores['ter']:.2f}  {scores['ter_signature']}")
    if "comet" in scores:
        lines.append(f"  COMET {scores['comet']:.4f}  {scores['comet_signature']}")
    if "new_piece_penalties" in scores:
        found = (f"{penalty} {ter:.2f}" for penalty, ter in scores["new_piece_penalties"].items())
        lines.append(
            f"  penalty {scores['new_piece_penalty']:g} on new pieces; TER on valid: {', '.join(found)}"
        )
    if "uncorrected" in scores:
        before, changes = scores["uncorrected"], scores["changes"]
        shown = (f"{label} {before[label.lower()]:.2f}" for label in ("BLEU", "chrF", "TER"))
        lines.append("  uncorrected: " + "  ".join(shown))
        lines.append(
            "  sentences: " + ", ".join(f"{changes[key]} {key.replace('_', ' ')}" for key in changes)
        )
        gain = scores["gain"]
        told = f"  gain over doing nothing: {gain['ter']:+.2f} TER by {gain['edits']} edits"
        lines.append(told if gain["per_edit"] is None else f"{told}, {gain['per_edit']:+.3f} each")
    if "tokenized_bleu" in scores:
        lines.append(f"  tokenized BLEU {scores['tokenized_bleu']:.2f}  {scores['tokenized_bleu_signature']}")
        lines.append(
            f"    on tokens of {scores['tokenized_bleu_tokens']}: not to be compared with BLEU above"
        )
    return "\n".join(lines)
