"""Translate the test sets of a corpus and score the detokenised translations with sacrebleu."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from .options import Parser, plain_name, real

OPTIONS = "beam length_penalty max_len_a max_len_b max_tokens cpu int8 tokenize skip_long"


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_model_options()
    what = "valid or the name of a test set; may be repeated (default: all test sets, or valid)"
    parser.add("--subset", plain_name, what, action="append")
    what = "folder for scores and translations (default: evaluation/CHECKPOINT beside the checkpoint)"
    parser.add("--output", Path, what, metavar="DIR")
    chosen = "; valid: that of 0, 0.5, 1, 2, 4 and 8 with the lowest TER on validation"
    parser.add_search_options(penalty, chosen)
    what = "sacrebleu's tokenizer for BLEU (default: that of the language)"
    parser.add("--tokenize", str, what, metavar="NAME")
    what = "leave out sentences that are longer than the model's limit, and list them"
    parser.add_switch("--skip-long", what)
    parser.add_switch("--verbose", "also show fairseq's messages")
    return parser.parse_args(argv)


def penalty(text: str) -> float | str:
    """Type of an argument: a penalty on new pieces, or ``valid``."""
    return text if text == "valid" else real(0, 1000)(text)


def main(argv=None) -> None:
    """Evaluate, and print the scores of each test set."""
    args = parse_args(argv)

    from .. import tasks  # noqa: F401  installs the guards
    from ..checkpoints import load_checkpoint
    from ..errors import UserError
    from ..files import check_output
    from ..translation.evaluate import Evaluator
    from ..translation.loading import corpus_of

    if not args.verbose:
        logging.getLogger("fairseq").setLevel(logging.WARNING)
    corpus = corpus_of(load_checkpoint(args.path), args.path, args.corpus, args.data)
    output = args.output or args.path.parent / "evaluation" / args.path.stem
    check_output(output / "scores.json")
    # Translations are named like the corpus's own files and would overwrite them.
    if output.resolve() in [folder.resolve() for folder in (corpus.raw, *corpus.written)]:
        raise UserError(f"{output} is a folder of the corpus; choose another --output")
    evaluator = Evaluator(args.path, corpus, **{option: getattr(args, option) for option in OPTIONS.split()})
    # Load all first, so that an error in one is noticed before any is translated.
    splits = [evaluator.load(name) for name in args.subset or corpus.test_sets or ["valid"]]
    evaluator.choose_penalty(args.new_piece_penalty)
    for split in splits:
        scores = evaluator.evaluate(split, output)
        print(described(scores))
        print(f"  {output / scores['test_set']}.json", flush=True)


def described(scores: dict) -> str:
    """The scores of a test set as lines of text, and how its unusual sentences were handled."""
    from ..errors import first_few
    from ..translation.loading import Limit

    lines = [f"{scores['test_set']}  {scores['direction']}  {scores['sentences']} sentences"]
    limit = Limit(scores["max_len_a"], scores["max_len_b"])
    for key, told in (
        ("left_out_lines", "left out, as longer than the model's limit"),
        ("blank_lines", "blank sources, with a blank translation"),
        ("unfinished_lines", f"translations that reached {limit}, and may lack their end"),
    ):
        if numbers := scores.get(key):
            lines.append(f"  {told}: {len(numbers)} ({first_few([line - 1 for line in numbers])})")
    lines.append(f"  references: {scores['references']}")
    if "case" in scores:
        lines.append(f"  case: {scores['case'].replace('_', ' ')}, as the pieces have no capitals")
    for name in ("BLEU", "chrF", "TER"):
        score, signature = scores[name.lower()], scores[f"{name.lower()}_signature"]
        lines.append(f"  {name:<4} {score:.2f}  {signature}")
    if "new_piece_penalties" in scores:
        tried = ", ".join(f"{penalty} {ter:.2f}" for penalty, ter in scores["new_piece_penalties"].items())
        lines.append(f"  penalty {scores['new_piece_penalty']:g} on new pieces; TER on valid: {tried}")
    if "uncorrected" in scores:
        before, changes = scores["uncorrected"], scores["changes"]
        uncorrected = (f"{name} {before[name.lower()]:.2f}" for name in ("BLEU", "chrF", "TER"))
        lines.append("  uncorrected: " + "  ".join(uncorrected))
        counts = (f"{count} {change.replace('_', ' ')}" for change, count in changes.items())
        lines.append("  sentences: " + ", ".join(counts))
    if "tokenized_bleu" in scores:
        lines.append(f"  tokenized BLEU {scores['tokenized_bleu']:.2f}  {scores['tokenized_bleu_signature']}")
        tokens = scores["tokenized_bleu_tokens"]
        lines.append(f"    on tokens of {tokens}: not to be compared with BLEU above")
    return "\n".join(lines)
