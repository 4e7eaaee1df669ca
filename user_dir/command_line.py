"""What all command lines share: argument types, and :func:`run_command`, where errors become exit statuses.

Only the standard library is needed, so that ``--help`` is immediate and ``install.py`` can use it.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import errno
import logging
import math
import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from .errors import UserError

INTERRUPTED = 130
CLOSED_PIPE = 141
"""Exit statuses of a process that SIGINT or SIGPIPE ended, as a shell reports them."""
MAX_NAME_BYTES = 255  # bytes; the limit of Linux, macOS and Windows
# For terminals without these characters; any other becomes an escape such as \u3042.
_SUBSTITUTES = {"α": "alpha", "Δ": "delta ", "ρ": "rho", "σ": "sigma", "×": "x", "·": "*", "±": "+-"}
_SUBSTITUTES.update({"–": "-", "−": "-", "…": "...", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "▁": "_"})


def run_command(main: Callable[[], object], interrupted: str = "interrupted") -> None:
    """Call ``main()`` and exit: with status 0, or with one message on stderr and another status.

    - a :class:`UserError`, or a file that the operating system refuses: status 1
    - Ctrl-C: the message ``interrupted``, status 130
    - the reader of stdout is gone (``… | head``): no message, status 141
    - stdout cannot be written (a full disk): status 1

    Any other exception is a bug and keeps its traceback. Characters that the terminal's encoding lacks are
    replaced instead of raising an error.
    """
    logging.basicConfig(level=logging.INFO)  # otherwise fairseq makes all libraries log at DEBUG
    codecs.register_error("readable", _readable)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="readable")
    failures = _failures_of(sys.stdout)
    status = _outcome(main, interrupted, failures)
    if sys.stdout is not None:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
    if failures:
        # The interpreter flushes again at its end, and would report the same failure in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        gone = isinstance(failures[0], BrokenPipeError)
        status = status or (CLOSED_PIPE if gone else f"error: cannot write stdout: {failures[0].strerror}")
    sys.exit(status)


def _failures_of(stream: TextIO | None) -> list[OSError]:
    """The list to which every failure to write ``stream`` is added from now on.

    Only so is it known which errors are of stdout; argparse and logging even discard them.
    """
    failures: list[OSError] = []

    def watched(method):
        def call(*args):
            try:
                return method(*args)
            except OSError as error:
                failures.append(error)
                raise

        return call

    if stream is not None:
        stream.write, stream.flush = watched(stream.write), watched(stream.flush)
    return failures


def _outcome(main: Callable[[], object], interrupted: str, failures: list[OSError]) -> int | str | None:
    """Call ``main``; return what to pass to :func:`sys.exit`."""
    try:
        _check_words(sys.argv[1:])
        main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print(interrupted, file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:  # of argparse, and UserError
        return end.code
    except MemoryError:
        return "error: out of memory"
    except OSError as error:
        if error in failures:
            return None
        if error.filename is not None:
            return UserError(f"{os.fspath(error.filename)}: {error.strerror}").code
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # of writing, which names no file
            return f"error: cannot write: {error.strerror}"
        raise
    return None


def _check_words(words: list[str]) -> None:
    """Raise a UserError over a word that no message could quote."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            encoding = sys.getfilesystemencoding().upper()
            raise UserError(
                f"the argument {word} is not {encoding}, this system's encoding; rename what it names"
            ) from None
        # A tab separates the source sentence from its machine translation.
        if any(unicodedata.category(each) == "Cc" for each in word.replace("\t", " ")):
            raise UserError(f"the argument {word!r} has a control character; rename what it names")


def _readable(error: UnicodeError) -> tuple[str, int]:
    """Error handler of codecs: names of Greek letters and the like, escapes for the rest."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    shown = [
        _SUBSTITUTES.get(each) or each.encode("ascii", "backslashreplace").decode()
        for each in error.object[error.start : error.end]
    ]
    return "".join(shown), error.end


def whole(least: int, most: int) -> Callable[[str], int]:
    """Type of an argument: a whole number from ``least``, 0 or more, to ``most``, of at most 63 bits."""

    def number(text: str) -> int:
        if not (text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} to {most:,}")
        return int(text)

    return number


def at_most(limit: int) -> Callable[[str], int]:
    """Type of an argument: a whole number from 1 to ``limit``."""
    return whole(1, limit)


def real(least: float, most: float) -> Callable[[str], float]:
    """Type of an argument: a number from ``least`` to ``most``; neither nan nor inf."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from {least:g} to {most:g}")
        return value

    return number


positive = whole(1, 2**63 - 1)
whole_number = whole(0, 2**63 - 1)
seed = whole(0, 2**32 - 1)
"""Type of an argument: a random seed, which numpy takes as well."""
length_penalty = real(-10, 10)
"""Type of an argument: fairseq's ``--lenpen``; lengths to the power of it are divisors in float32."""


def file_path(text: str) -> Path:
    """Type of an argument: the path of a file, to read or to write."""
    path = path_of(text)
    if path.name in ("", ".."):
        raise argparse.ArgumentTypeError(f"{text!r} names a folder, not a file")
    return path


def checkpoint_path(text: str) -> Path:
    """Type of an argument: the path of a checkpoint to write, as PyTorch does."""
    path = file_path(text)
    if path.suffix == ".safetensors":
        raise argparse.ArgumentTypeError(f"{text!r} would be read as safetensors, which it is not; use .pt")
    return path


def path_of(text: str) -> Path:
    """Type of an argument: the path of a file or a folder."""
    path = Path(text)
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in path.parts):
        raise argparse.ArgumentTypeError(
            f"{text[:40]}… is too long: a name has at most {MAX_NAME_BYTES} bytes"
        )
    return path


def plain_name(text: str) -> str:
    """Type of an argument: the name of a corpus or a split, which becomes part of the names of files."""
    if text in ("", ".", "..") or "/" in text or len(os.fsencode(text)) > MAX_NAME_BYTES:
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
