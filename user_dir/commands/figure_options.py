"""What the commands that draw figures have in common."""

from __future__ import annotations

import argparse
import math

_WIDTHS = {"column": 7.7, "page": 16.0}  # cm; of the ACL's style


def add_width_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--width``; the value is in inches, or None."""
    parser.add_argument(
        "--width",
        type=_inches,
        metavar="CM",
        help="width of the figure in cm, or column (7.7 cm) or page (16 cm) of a paper; panels that would be "
        "too narrow are stacked (default: as wide as the panels need)",
    )


def add_name_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--name``, once for each model."""
    parser.add_argument(
        "--name",
        action="append",
        metavar="NAME",
        help="name of each model, in the same order (default: its folder and file)",
    )


def add_format_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--format``."""
    parser.add_argument(
        "--format", choices=("svg", "pdf", "png"), default="svg", help="format of figures (default: svg)"
    )


def _inches(text: str) -> float:
    try:
        width = _WIDTHS.get(text) or float(text)
    except ValueError:
        width = math.nan
    if not 4 <= width <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not column, page or a width of 4 to 100 cm")
    return width / 2.54
