"""Readers yield the sentences of a file as released, without loading the whole file."""

from .columns import Table
from .lines import read_lines, read_made_lines
from .pairs import FORMATS, format_of, read_pairs

__all__ = ["FORMATS", "Table", "format_of", "read_lines", "read_made_lines", "read_pairs"]
