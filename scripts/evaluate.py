#!/usr/bin/env python3
"""Translate the test sets of a corpus with a checkpoint, and score the detokenised text with sacrebleu."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _split import positive

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, metavar="CHECKPOINT", help="what translates")
    parser.add_argument("--corpus", required=True, help="a prepared corpus, for instance multi30k")
    parser.add_argument(
        "--test-set",
        action="append",
        metavar="NAME",
        help="or valid; may be given several times; all test sets if not given",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the corpora; data/ if not given")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="evaluation/CHECKPOINT beside the checkpoint if not given"
    )
    parser.add_argument("--beam", type=positive, default=5, help="beam size")
    parser.add_argument("--lenpen", type=float, default=1.0, help="length penalty")
    parser.add_argument("--max-tokens", type=positive, default=4096, help="tokens in a batch")
    parser.add_argument("--tokenize", metavar="NAME", help="sacrebleu's tokenizer, if not its own choice")
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Evaluate, and print a line per test set."""
    args = parse_args(argv)

    import user_dir.models  # noqa: F401  registers the model
    from user_dir.corpora import load_corpus
    from user_dir.translation.evaluation import evaluate

    corpus = load_corpus(args.corpus, args.data).require_prepared()
    output = args.output or args.path.parent / "evaluation" / args.path.stem
    for test_set in args.test_set or corpus.test_sets:
        result = evaluate(
            args.path,
            corpus,
            test_set,
            output,
            beam=args.beam,
            length_penalty=args.lenpen,
            max_tokens=args.max_tokens,
            tokenize=args.tokenize,
        )
        print(f"{test_set}  {result['direction']}  {result['sentences']} sentences")
        print(f"  references: {result['references']}")
        print(f"  BLEU {result['bleu']:.2f}  {result['bleu_signature']}")
        print(f"  chrF {result['chrf']:.2f}  {result['chrf_signature']}")
        if "tokenized_bleu" in result:
            print(f"  tokenized BLEU {result['tokenized_bleu']:.2f}  {result['tokenized_bleu_signature']}")
            print(f"    on tokens of {result['tokenized_bleu_tokens']}: not to be compared with BLEU above")
        print(f"  {output / test_set}.json")


if __name__ == "__main__":
    main()
