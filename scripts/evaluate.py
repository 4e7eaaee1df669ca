#!/usr/bin/env python3
"""Translate the test sets of a corpus with a checkpoint, and score the detokenised text with sacrebleu."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from user_dir.command_line import file_path, path_of, plain_name, positive, run_command


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--path", type=file_path, required=True, metavar="CHECKPOINT", help="what translates")
    parser.add_argument(
        "--corpus", type=plain_name, required=True, help="a prepared corpus, for instance multi30k"
    )
    parser.add_argument(
        "--test-set",
        type=plain_name,
        action="append",
        metavar="NAME",
        help="or valid; may be given several times; all test sets if not given, valid if there is none",
    )
    parser.add_argument(
        "--data", type=path_of, metavar="DIR", help="folder of the corpora; data/ if not given"
    )
    parser.add_argument(
        "--output",
        type=path_of,
        metavar="DIR",
        help="evaluation/CHECKPOINT beside the checkpoint if not given",
    )
    parser.add_argument("--beam", type=positive, default=5, help="beam size")
    parser.add_argument("--lenpen", type=float, default=1.0, help="length penalty")
    parser.add_argument("--max-tokens", type=positive, default=4096, help="tokens in a batch")
    parser.add_argument("--tokenize", metavar="NAME", help="sacrebleu's tokenizer, if not its own choice")
    parser.add_argument(
        "--skip-long",
        action="store_true",
        help="leave out sentences that are longer than the model takes, and list them",
    )
    parser.add_argument(
        "--truncate-source",
        action="store_true",
        help="cut sources that are longer than the model takes, and list them",
    )
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Evaluate, and print a line per test set."""
    args = parse_args(argv)

    import user_dir.models  # noqa: F401  registers the model
    from user_dir.corpora import load_corpus
    from user_dir.guards.long_sentences import first_few
    from user_dir.io import check_output
    from user_dir.translation.evaluation import evaluate

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    corpus = load_corpus(args.corpus, args.data).require_prepared()
    output = args.output or args.path.parent / "evaluation" / args.path.stem
    check_output(output / "scores.json")
    evaluations = evaluate(
        args.path,
        corpus,
        args.test_set or corpus.test_sets or ["valid"],
        output,
        beam=args.beam,
        length_penalty=args.lenpen,
        max_tokens=args.max_tokens,
        tokenize=args.tokenize,
        skip_long=args.skip_long,
        truncate_source=args.truncate_source,
    )
    for evaluation in evaluations:
        scores = evaluation.scores
        print(f"{scores['test_set']}  {scores['direction']}  {scores['sentences']} sentences")
        for key, told in (("left_out_lines", "left out"), ("truncated_lines", "cut")):
            if scores.get(key):
                shown = first_few([line - 1 for line in scores[key]])
                print(f"  {told}, as longer than the model takes: {len(scores[key])} ({shown})")
        print(f"  references: {scores['references']}")
        print(f"  BLEU {scores['bleu']:.2f}  {scores['bleu_signature']}")
        print(f"  chrF {scores['chrf']:.2f}  {scores['chrf_signature']}")
        if "tokenized_bleu" in scores:
            print(f"  tokenized BLEU {scores['tokenized_bleu']:.2f}  {scores['tokenized_bleu_signature']}")
            print(f"    on tokens of {scores['tokenized_bleu_tokens']}: not to be compared with BLEU above")
        print(f"  {output / scores['test_set']}.json", flush=True)


if __name__ == "__main__":
    run_command(main)
