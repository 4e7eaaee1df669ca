"""``--table`` of the scripts that print tables: the Markdown in a file, all figures as JSON beside it."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_table_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--table``."""
    parser.add_argument(
        "--table",
        type=_markdown,
        metavar="FILE.md",
        help="also write the tables there; all figures to FILE.json",
    )


def write_tables(path: Path | None, tables: str, figures: dict) -> None:
    """Write both where ``--table`` was given."""
    from user_dir.io import write_json, write_text

    if path is not None:
        write_text(path, tables + "\n")
        write_json(path.with_suffix(".json"), figures)


def _markdown(text: str) -> Path:
    if Path(text).suffix == ".json":
        raise argparse.ArgumentTypeError(f"{text} is the Markdown; the JSON is written beside it")
    return Path(text)
