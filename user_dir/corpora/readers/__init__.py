"""Readers: from a file, as released, to its sentences, one at a time and never the whole file in memory."""

from .lines import read_lines
from .pairs import FORMATS, format_of, read_pairs

__all__ = ["FORMATS", "format_of", "read_lines", "read_pairs"]
