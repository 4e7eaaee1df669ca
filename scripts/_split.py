"""What the commands that run a model over a data split have in common: arguments, and loading both."""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path
from types import SimpleNamespace


def positive(text: str) -> int:
    """A whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def split_parser(description: str) -> argparse.ArgumentParser:
    """A parser that has ``--path``, ``--corpus``, ``--subset`` and so on."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--path", type=Path, required=True, metavar="CHECKPOINT", help="of our model, or a stock transformer"
    )
    parser.add_argument("--corpus", required=True, help="a prepared corpus, for instance multi30k")
    parser.add_argument("--subset", default="valid", help="valid (default), train, or a test set's name")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the corpora (default: data/)")
    parser.add_argument("--sentences", type=positive, metavar="N", help="only the first N of the subset")
    parser.add_argument(
        "--max-tokens", type=positive, default=4096, metavar="N", help="tokens in a batch (default: 4096)"
    )
    parser.add_argument("--cpu", action="store_true", help="even if there is a GPU")
    return parser


def open_split(args: argparse.Namespace) -> SimpleNamespace:
    """Load what the arguments name: ``corpus``, ``subset``, ``model``, ``task``; ``report`` says which."""
    import user_dir.models  # noqa: F401  registers the model
    from user_dir.analysis.capture import load_model
    from user_dir.corpora import load_corpus

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")
    corpus = load_corpus(args.corpus, args.data).require_prepared()
    subset = corpus.subset(args.subset)
    model, task = load_model(args.path, corpus, cpu=args.cpu)
    report = {
        "checkpoint": str(args.path),
        "corpus": corpus.name,
        "subset": args.subset,
        "source_lang": task.cfg.source_lang,
        "target_lang": task.cfg.target_lang,
    }
    return SimpleNamespace(corpus=corpus, subset=subset, model=model, task=task, report=report)


def rounded(value):
    """The numbers in nested lists and dicts, at 8 decimals: more is noise."""
    if isinstance(value, float):
        return round(value, 8)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value
