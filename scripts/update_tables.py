#!/usr/bin/env python3
r"""Update the tables of a Markdown page from the commands shown above them.

    python scripts/update_tables.py docs/results.md
    python scripts/update_tables.py docs/results.md --check

Runs every command in an sh fence whose output the page shows, from the repository's root: use it only on
pages you trust. With --check nothing is written; differences are printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
from pathlib import Path

import _checkout  # noqa: F401  finds the package

from user_dir.command_line import file_path, run_command
from user_dir.commands.options import new_parser

ROOT = Path(__file__).resolve().parents[1]


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = new_parser(__doc__)
    parser.add_argument("page", type=file_path, metavar="PAGE.md", help="page whose commands are run")
    parser.add_argument("--check", action="store_true", help="only compare")
    return parser.parse_args(argv)


def run(command: str) -> str:
    """What a command of a page prints, with this Python; raises a UserError if it fails."""
    from user_dir.errors import UserError

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode:
        last = done.stderr.strip().split("\n")[-1]
        raise UserError(
            f"a command of the page ended with status {done.returncode}: {last}; it is: {command}"
        )
    return done.stdout


def main(argv=None) -> None:
    """Read, run, compare or write."""
    args = parse_args(argv)

    from user_dir.errors import UserError
    from user_dir.experiments.tables_page import updated
    from user_dir.io import read_text, write_text

    page = read_text(args.page, "the page")
    new = updated(page, run)
    if not args.check:
        write_text(args.page, new)
        print(f"{args.page}: {'as it was' if new == page else 'tables written anew'}")
    elif new != page:
        sys.stdout.writelines(
            difflib.unified_diff(page.splitlines(True), new.splitlines(True), str(args.page), "printed now")
        )
        raise UserError(f"{args.page} differs from what its commands print; run update_tables.py {args.page}")


if __name__ == "__main__":
    run_command(main)
