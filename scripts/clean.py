#!/usr/bin/env python3
"""Remove the trainings in checkpoints/ and outputs/, after asking. `make clean` runs this."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import _checkout  # noqa: F401  finds the package

from user_dir.commands.options import run_command
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("checkpoints", "outputs")


def main(argv=None) -> None:
    """Ask, and remove what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    args = parser.parse_args(argv)
    folders = [folder for name in FOLDERS if (folder := ROOT / name).exists() or folder.is_symlink()]
    if not folders:
        return
    size = sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
    names = " and ".join(f"{folder.name}/" for folder in folders)
    question = f"{names} of trainings ({size / 2**20:,.0f} MiB)"
    if not args.yes:
        if not sys.stdin or not sys.stdin.isatty():
            raise UserError(
                f"{question} would be removed, and nobody is there to ask: make clean CONFIRM=yes"
            )
        if input(f"Remove {question}? [y/N] ").strip().lower() not in ("y", "yes"):
            raise UserError("nothing was removed")
    for folder in folders:
        if folder.is_symlink():  # the folder that it leads to is elsewhere for a reason
            folder.unlink()
        else:
            shutil.rmtree(folder)
    print(f"removed {names}")


if __name__ == "__main__":
    run_command(main, "interrupted; trainings may be left")
