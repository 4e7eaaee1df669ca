"""The mark of a repair, for the two modules that are to move to the rooms whose work they hand over to."""

from . import around

__all__ = ["around"]
