"""``--system`` of the scripts that set systems side by side: a name, and a file for each seed."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_system_argument(parser: argparse.ArgumentParser, file: str, times: str) -> None:
    """Add ``--system NAME FILE…``, which ``args.system`` has as pairs of name and paths, in order."""
    parser.add_argument(
        "--system",
        nargs="+",
        action=_System,
        required=True,
        metavar=("NAME", file),
        help=f"a system's name, and a file for each of its seeds; {times}",
    )


class _System(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        name, *files = values
        systems = getattr(namespace, self.dest) or []
        if not files:
            parser.error(f"--system {name}: give a name, and then a file for each seed")
        if name in dict(systems):
            parser.error(f"two systems are named {name}; give each a name of its own")
        setattr(namespace, self.dest, [*systems, (name, list(map(Path, files)))])
