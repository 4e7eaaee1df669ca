"""What the commands that run a model over a data split have in common: arguments, and loading both."""

from __future__ import annotations

import argparse
import logging

from user_dir.command_line import file_path, path_of, plain_name


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
        "--path",
        type=file_path,
        required=True,
        metavar="CHECKPOINT",
        help="of our model, or a stock transformer",
    )
    parser.add_argument(
        "--corpus", type=plain_name, required=True, help="a prepared corpus, for instance multi30k"
    )
    parser.add_argument(
        "--subset", type=plain_name, default="valid", help="valid (default), train, or a test set's name"
    )
    parser.add_argument("--data", type=path_of, metavar="DIR", help="folder of the corpora (default: data/)")
    parser.add_argument("--sentences", type=positive, metavar="N", help="only the first N of the subset")
    parser.add_argument(
        "--max-tokens", type=positive, default=4096, metavar="N", help="tokens in a batch (default: 4096)"
    )
    parser.add_argument("--cpu", action="store_true", help="even if there is a GPU")
    return parser


def open_split(args: argparse.Namespace):
    """Open the split that the arguments name, with fairseq's messages off."""
    from user_dir.analysis import split

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    sizes = {"sentences": args.sentences, "max_tokens": args.max_tokens}
    return split.open_split(args.path, args.corpus, args.subset, data=args.data, cpu=args.cpu, **sizes)
