"""What all commands share: types of arguments, options, and how a command ends. Only the standard library."""

from __future__ import annotations

import argparse
import codecs
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError

INTERRUPTED, CLOSED_PIPE = 130, 141
"""Exit statuses of a process that SIGINT or SIGPIPE ended, as a shell reports them."""
# For terminals without these characters; any other becomes an escape such as \u3042.
_SUBSTITUTES = {"α": "alpha", "Δ": "delta ", "ρ": "rho", "σ": "sigma", "×": "x", "·": "*", "±": "+-"}
_SUBSTITUTES.update({"–": "-", "−": "-", "…": "...", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "▁": "_"})


def run_command(main: Callable[[], object], interrupted: str = "interrupted") -> None:
    """Call ``main()`` and exit: with status 0, or with one message on stderr and another status.

    Status 1 is a :class:`UserError` or a file that the operating system refuses, 130 is Ctrl-C (with the
    message ``interrupted``), and 141 that nobody reads stdout any more (``… | head``). Any other exception is
    a bug and keeps its traceback. Characters that the terminal's encoding lacks are replaced.
    """
    logging.basicConfig(level=logging.INFO)  # otherwise fairseq makes all libraries log at DEBUG
    codecs.register_error("readable", _readable)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="readable")
    try:
        main()
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The interpreter flushes again at its end, and would report the same failure in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(CLOSED_PIPE)
    except UserError as error:
        sys.exit(error.code)
    except OSError as error:
        sys.exit(UserError(f"{error.filename or 'cannot write stdout'}: {error.strerror}").code)
    sys.exit(0)


def _readable(error: UnicodeError) -> tuple[str, int]:
    """Error handler of codecs: names of Greek letters and the like, escapes for the rest."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    shown = [
        _SUBSTITUTES.get(character) or character.encode("ascii", "backslashreplace").decode()
        for character in error.object[error.start : error.end]
    ]
    return "".join(shown), error.end


def whole(least: int, most: int) -> Callable[[str], int]:
    """Type of an argument: a whole number from ``least`` to ``most``."""

    def number(text: str) -> int:
        if not (text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} to {most:,}")
        return int(text)

    return number


def real(least: float, most: float) -> Callable[[str], float]:
    """Type of an argument: a number from ``least`` to ``most``."""

    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from {least:g} to {most:g}")
        return value

    return number


def at_most(limit: int) -> Callable[[str], int]:
    """Type of an argument: a whole number from 1 to ``limit``."""
    return whole(1, limit)


positive = whole(1, 2**63 - 1)
whole_number = whole(0, 2**63 - 1)
seed = whole(0, 2**32 - 1)
"""Type of an argument: a random seed, which numpy takes as well."""
length_penalty = real(-10, 10)
"""Type of an argument: fairseq's ``--lenpen``."""


def path_of(text: str) -> Path:
    """Type of an argument: the path of a folder."""
    return Path(text)


def file_path(text: str) -> Path:
    """Type of an argument: the path of a file."""
    return Path(text)


def plain_name(text: str) -> str:
    """Type of an argument: the name of a corpus or a split, which becomes part of the names of files."""
    if text in ("", ".", "..") or "/" in text:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} cannot be the name of a file")
    return text


_METAVARS = {file_path: "FILE", path_of: "DIR", plain_name: "NAME", length_penalty: "X"}


def option_adder(parser) -> Callable[..., object]:
    """A function that adds an option to a parser or a group of one: its flag, type and help, and what else
    ``add_argument`` takes. The metavar is that of the type: FILE, DIR, NAME, and N for numbers.
    """

    def add(flag: str, type: Callable[[str], object], help: str, **more):
        metavar = more.pop("metavar", _METAVARS.get(type, "N"))
        return parser.add_argument(flag, type=type, metavar=metavar, help=help, **more)

    return add


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
    return text if text == "valid" else real(0, 1000)(text)


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
        if not files or name in dict(systems):
            parser.error(f"--system {name}: give a name of its own, and then a file for each seed")
        setattr(namespace, self.dest, [*systems, (name, list(map(Path, files)))])


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--output FILE.md``, of tables whose figures are written beside it."""
    what = "also write the tables to this file, and all figures to FILE.json (default: print only)"
    option_adder(parser)("--output", file_path, what, metavar="FILE.md")


def add_name_option(parser) -> None:
    """Add ``--name``, once for each model."""
    what = "name of each model, in the same order (default: its folder and file)"
    option_adder(parser)("--name", str, what, action="append", metavar="NAME")


def add_format_option(parser) -> None:
    """Add ``--format`` of figures."""
    parser.add_argument(
        "--format", choices=("svg", "pdf", "png"), default="svg", help="format of figures (default: svg)"
    )
