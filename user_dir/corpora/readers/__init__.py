"""Readers yield the sentences of a file as released, without loading the whole file."""

from .lines import read_lines, read_made_lines

__all__ = ["read_lines", "read_made_lines"]
