"""Print the folder to pass to fairseq: ``fairseq-train --user-dir "$(python -m adaptively_sparse)" …``."""

import sys
from pathlib import Path

from .commands.options import run_command


def main() -> None:
    """Print the folder as bytes, whatever characters its name has."""
    sys.stdout.reconfigure(errors="surrogateescape")
    print(Path(__file__).resolve().parent)


if __name__ == "__main__":
    run_command(main)
