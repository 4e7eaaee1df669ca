"""What all commands share: types of arguments, options, and how a command ends. Only the standard library."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError


def run_command(main: Callable[[], object], interrupted: str = "interrupted") -> None:
    """Call ``main()`` and exit: with status 0, or with one message on stderr and another status.

    Status 1 means a :class:`UserError` or an ``OSError``. As in a shell, 130 means Ctrl-C (with the message
    ``interrupted``), and 141 that the reader of stdout has ended (``… | head``). Any other exception is a bug
    and keeps its traceback. Characters that the terminal's encoding lacks are escaped.
    """
    logging.basicConfig(level=logging.INFO)  # otherwise fairseq makes all libraries log at DEBUG
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed; the next file to be opened would get its descriptor
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    try:
        main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The interpreter flushes stdout again when it ends, and would report this error, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except UserError as error:
        sys.exit(error.code)
    except OSError as error:
        sys.exit(UserError(f"{error.filename or 'cannot write'}: {error.strerror}").code)
    sys.exit(0)


def positive(text: str) -> int:
    """Type of an argument: a whole number from 1."""
    if not text.isdecimal() or not 1 <= int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1")
    return int(text)


def real(least: float, most: float) -> Callable[[str], float]:
    """Type of an argument: a number from ``least`` to ``most``."""

    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from {least:g} to {most:g}")
        return value

    return number


def plain_name(text: str) -> str:
    """Type of an argument: the name of a corpus or a split, which becomes part of the names of files."""
    if text in ("", ".", "..") or "/" in text:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} cannot be the name of a file")
    return text


class Parser(argparse.ArgumentParser):
    """A parser of a command line whose ``--help`` shows the description as it is written."""

    def __init__(self, description: str):
        show = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, formatter_class=show, allow_abbrev=False)

    def add(self, flag: str, type: Callable[[str], object], help: str, **more) -> None:
        """Add an option; the metavar is that of its type: FILE, NAME, or N for numbers."""
        metavar = {Path: "FILE", plain_name: "NAME"}.get(type, "N")
        self.add_argument(flag, type=type, help=help, **{"metavar": metavar, **more})

    def add_switch(self, flag: str, help: str) -> None:
        """Add an option without a value."""
        self.add_argument(flag, action="store_true", help=help)

    def add_model_options(self) -> None:
        """Add ``--path``, ``--corpus``, ``--data``, ``--max-tokens`` and ``--cpu``."""
        what = "checkpoint of this plugin's model or of fairseq's transformer"
        self.add("--path", Path, what, required=True, metavar="CHECKPOINT")
        what = "prepared corpus, such as multi30k (default: the one that the checkpoint names)"
        self.add("--corpus", plain_name, what)
        self.add_data_option()
        self.add("--max-tokens", positive, "tokens per batch (default: 4096)", default=4096)
        self.add_cpu_option()

    def add_split_options(self) -> None:
        """Add the options of a model, and ``--subset`` and ``--sentences``."""
        self.add_model_options()
        self.add_subset_option()
        self.add("--sentences", positive, "use the first N sentences only")

    def add_data_option(self) -> None:
        """Add ``--data``."""
        where = "data, in the repository or, of the installed package, here"
        self.add("--data", Path, f"folder of the corpora (default: {where})", metavar="DIR")

    def add_cpu_option(self) -> None:
        """Add ``--cpu``."""
        self.add_switch("--cpu", "do not use a GPU")

    def add_subset_option(self) -> None:
        """Add ``--subset``."""
        what = "train, valid or the name of a test set (default: valid)"
        self.add("--subset", plain_name, what, default="valid")

    def add_search_options(self, penalty: Callable[[str], object], more: str = "") -> None:
        """Add ``--beam``, ``--lenpen``, ``--max-len-a`` and ``-b``, ``--new-piece-penalty`` and ``--int8``.

        ``penalty`` is the type of the argument of ``--new-piece-penalty``; ``more`` is added to its help.
        """
        self.add("--beam", positive, "beam size (default: 5)", default=5)
        what = "length penalty; above 1 favours longer translations (default: 1, none)"
        self.add("--lenpen", real(-10, 10), what, dest="length_penalty", default=1.0, metavar="X")
        what = "a translation ends after X times the source's pieces and those of --max-len-b (default: 0)"
        self.add("--max-len-a", real(0, 1000), what, metavar="X")
        what = "see --max-len-a (default: the longest side of a training pair, at least 200)"
        self.add("--max-len-b", positive, what)
        what = "of a post-editor: subtract this from the logits of pieces that stand neither in the source "
        what += f"nor in the machine translation (default: that of the checkpoint, usually 0){more}"
        self.add("--new-piece-penalty", penalty, what, metavar="X")
        self.add_switch("--int8", "translate with 8-bit integers, on the CPU")
