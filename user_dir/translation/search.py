"""Moved to :mod:`.loading`; for rooms that still import it from here."""

from .loading import Search  # noqa: F401
