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
        help="width of the figure in cm, or a width of papers: column (7.7 cm) or page (16 cm); panels "
        "that would be too narrow are stacked (default: as wide as the panels need)",
    )


def _inches(text: str) -> float:
    try:
        width = _WIDTHS.get(text) or float(text)
    except ValueError:
        width = math.nan
    if not 4 <= width <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not column, page or a width of 4 to 100 cm")
    return width / 2.54
