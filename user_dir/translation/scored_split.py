"""Moved to :mod:`.scoring`; for rooms that still import it from here."""

from .scoring import ScoredSplit  # noqa: F401
