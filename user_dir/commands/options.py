"""Options that several scripts share, and opening the model and the data split that they name."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

from ..command_line import file_path, path_of, plain_name, positive, up_to
from ..guards.table import WITHOUT, checked


def new_parser(description: str) -> argparse.ArgumentParser:
    """A parser with ``--without-guard`` whose ``--help`` shows the description as it is written."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--without-guard",
        action=_LeaveOut,
        metavar="NAME",
        help="leave out one of the changes to fairseq that the command guards lists; can be repeated",
    )
    return parser


class _LeaveOut(argparse.Action):
    """Adds a name to the environment variable, which child processes see as well."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        names = [*filter(None, os.environ.get(WITHOUT, "").split(",")), checked(values)]
        os.environ[WITHOUT] = ",".join(names)


def split_parser(description: str) -> argparse.ArgumentParser:
    """A parser that has the options of :func:`open_split`."""
    parser = new_parser(description)
    add_model_options(parser)
    add_subset_option(parser)
    parser.add_argument("--sentences", type=positive, metavar="N", help="use the first N sentences only")
    return parser


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--path``, ``--corpus``, ``--data``, ``--max-tokens`` and ``--cpu``."""
    parser.add_argument(
        "--path",
        type=file_path,
        required=True,
        metavar="CHECKPOINT",
        help="checkpoint of this plugin's model or of fairseq's transformer",
    )
    parser.add_argument(
        "--corpus", type=plain_name, required=True, metavar="NAME", help="prepared corpus, such as multi30k"
    )
    add_data_option(parser)
    parser.add_argument(
        "--max-tokens", type=positive, default=4096, metavar="N", help="tokens per batch (default: 4096)"
    )
    add_cpu_option(parser)


def add_data_option(parser) -> None:
    """Add ``--data``."""
    parser.add_argument(
        "--data",
        type=path_of,
        metavar="DIR",
        help="folder of the corpora (default: data, in the repository or, of the installed package, here)",
    )


def add_cpu_option(parser) -> None:
    """Add ``--cpu``."""
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def add_penalty_option(parser) -> None:
    """Add ``--new-piece-penalty``."""
    parser.add_argument(
        "--new-piece-penalty",
        type=_penalty,
        metavar="X",
        help="of a post-editor: subtract this from the logits of pieces that stand neither in the source nor "
        "in the machine translation (default: that of the checkpoint, usually 0)",
    )


def add_length_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--max-len-a`` and ``--max-len-b``."""
    parser.add_argument(
        "--max-len-a",
        type=_times,
        metavar="X",
        help="a translation ends after X times the source's pieces and those of --max-len-b (default: 0)",
    )
    parser.add_argument(
        "--max-len-b",
        type=positive,
        metavar="N",
        help="see --max-len-a (default: the longest side of a training pair, at least 200)",
    )


def _times(text: str) -> float:
    """A number from 0 to 1000."""
    value = up_to(1000)(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is less than 0")
    return value


def _penalty(text: str) -> float:
    """A number from 0 to 1000."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1000")
    return value


def add_subset_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--subset``."""
    parser.add_argument(
        "--subset",
        type=plain_name,
        default="valid",
        metavar="NAME",
        help="train, valid or the name of a test set (default: valid)",
    )


def inputs_of(args: argparse.Namespace) -> list[Path]:
    """The checkpoint and the corpus that the arguments name, which no output may replace."""
    from ..corpora import load_corpus

    return [args.path, *load_corpus(args.corpus, args.data).kept]


def open_split(args: argparse.Namespace):
    """Open the split that the arguments name, with fairseq's messages off."""
    from ..analysis import split

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    sizes = {"sentences": args.sentences, "max_tokens": args.max_tokens}
    language = getattr(args, "language", None)
    return split.open_split(
        args.path, args.corpus, args.subset, data=args.data, cpu=args.cpu, language=language, **sizes
    )
