"""Options of the scripts that compare runs: ``--system``, a name and a file for each seed; ``--output``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..command_line import file_path
from ..packed_folders import expanded


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


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--output FILE.md``, for :func:`user_dir.tables.write_tables`."""
    parser.add_argument(
        "--output",
        type=_markdown,
        metavar="FILE.md",
        help="also write the tables to this file, and all figures to FILE.json (default: print only)",
    )
    parser.add_argument("--table", dest="output", type=_markdown, help=argparse.SUPPRESS)


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


def _markdown(text: str) -> Path:
    path = file_path(text)
    if path.suffix == ".json":
        raise argparse.ArgumentTypeError(f"{text} is the Markdown; the JSON is written beside it")
    return path
