"""Finds the package in this checkout, whatever else is installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from user_dir.commands import run

__all__ = ["run"]
