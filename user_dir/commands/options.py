"""Options that several commands share, and opening the model and the data split that they name."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from ..command_line import file_path, length_penalty, option_adder, path_of, plain_name, positive, real
from ..packed_folders import expanded


def new_parser(description: str) -> argparse.ArgumentParser:
    """A parser whose ``--help`` shows the description as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )


def split_parser(description: str) -> argparse.ArgumentParser:
    """A parser that has the options of :func:`open_split`."""
    parser = new_parser(description)
    add_model_options(parser)
    add_subset_option(parser)
    option_adder(parser)("--sentences", positive, "use the first N sentences only")
    return parser


def add_model_options(parser, named: bool = True) -> None:
    """Add ``--path``, ``--corpus``, ``--data``, ``--max-tokens`` and ``--cpu``.

    Unless the corpus must be ``named``, it is by default that of the checkpoint.
    """
    add = option_adder(parser)
    what = "checkpoint of this plugin's model or of fairseq's transformer"
    add("--path", file_path, what, required=True, metavar="CHECKPOINT")
    default = "" if named else " (default: the one that the checkpoint names)"
    add("--corpus", plain_name, f"prepared corpus, such as multi30k{default}", required=named)
    add_data_option(parser)
    add("--max-tokens", positive, "tokens per batch (default: 4096)", default=4096)
    add_cpu_option(parser)


def add_data_option(parser) -> None:
    """Add ``--data``."""
    where = "data, in the repository or, of the installed package, here"
    option_adder(parser)("--data", path_of, f"folder of the corpora (default: {where})")


def add_cpu_option(parser) -> None:
    """Add ``--cpu``."""
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def add_search_options(parser, chooses: bool = False) -> None:
    """Add ``--beam``, ``--lenpen``, ``--max-len-a`` and ``-b``, ``--new-piece-penalty`` and ``--int8``.

    If the command ``chooses``, the penalty may be ``valid``.
    """
    add = option_adder(parser)
    add("--beam", positive, "beam size (default: 5)", default=5)
    add_length_penalty(parser, "length penalty; above 1 favours longer translations")
    length = "a translation ends after X times the source's pieces and those of --max-len-b (default: 0)"
    add("--max-len-a", real(0, 1000), length, metavar="X")
    default = "the longest side of a training pair, at least 200"
    add("--max-len-b", positive, f"see --max-len-a (default: {default})")
    penalty = (
        "of a post-editor: subtract this from the logits of pieces that stand neither in the source nor in "
        "the machine translation (default: that of the checkpoint, usually 0)"
    )
    if chooses:
        penalty += "; valid: that of 0, 0.5, 1, 2, 4 and 8 with the lowest TER on validation"
    add("--new-piece-penalty", _penalty if chooses else real(0, 1000), penalty, metavar="X")
    parser.add_argument("--int8", action="store_true", help="translate with 8-bit integers, on the CPU")


def _penalty(text: str) -> float | str:
    if text == "valid":
        return text
    try:
        return real(0, 1000)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor valid") from None


def add_length_penalty(parser, what: str) -> None:
    """Add ``--lenpen``."""
    option_adder(parser)(
        "--lenpen", length_penalty, f"{what} (default: 1, none)", dest="length_penalty", default=1.0
    )


def add_subset_option(parser) -> None:
    """Add ``--subset``."""
    what = "train, valid or the name of a test set (default: valid)"
    option_adder(parser)("--subset", plain_name, what, default="valid")


def add_system_argument(parser: argparse.ArgumentParser, file: str, times: str) -> None:
    """Add ``--system NAME FILE…``, which ``args.system`` has as pairs of name and paths, in order."""
    parser.add_argument(
        "--system",
        nargs="+",
        action=_System,
        required=True,
        metavar=("NAME", file),
        help=f"name of a system, and a file for each of its seeds; {times}",
    )


class _System(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        name, *files = values
        systems = getattr(namespace, self.dest) or []
        if not files:
            parser.error(f"--system {name}: give a name, and then a file for each seed")
        if name in dict(systems):
            parser.error(f"two systems are named {name}; give each a name of its own")
        try:
            paths = [path for file in files for path in expanded(file_path(file))]
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, [*systems, (name, paths)])


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--output FILE.md``, for :func:`user_dir.tables.write_tables`."""
    what = "also write the tables to this file, and all figures to FILE.json (default: print only)"
    option_adder(parser)("--output", _markdown, what, metavar="FILE.md")
    parser.add_argument("--table", dest="output", type=_markdown, help=argparse.SUPPRESS)


def _markdown(text: str) -> Path:
    path = file_path(text)
    if path.suffix == ".json":
        raise argparse.ArgumentTypeError(f"{text} is the Markdown; the JSON is written beside it")
    return path


_WIDTHS = {"column": 7.7, "page": 16.0}  # cm; of the ACL's style


def add_width_option(parser) -> None:
    """Add ``--width`` of a figure; the value is in inches, or None."""
    what = "width of the figure in cm, or column (7.7 cm) or page (16 cm) of a paper"
    narrow = "panels that would be too narrow are stacked (default: as wide as the panels need)"
    option_adder(parser)("--width", _inches, f"{what}; {narrow}", metavar="CM")


def _inches(text: str) -> float:
    try:
        return real(4, 100)(str(_WIDTHS.get(text, text))) / 2.54
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not column, page or a width of 4 to 100 cm") from None


def add_name_option(parser) -> None:
    """Add ``--name``, once for each model."""
    what = "name of each model, in the same order (default: its folder and file)"
    option_adder(parser)("--name", str, what, action="append", metavar="NAME")


def add_format_option(parser) -> None:
    """Add ``--format`` of figures."""
    parser.add_argument(
        "--format", choices=("svg", "pdf", "png"), default="svg", help="format of figures (default: svg)"
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
