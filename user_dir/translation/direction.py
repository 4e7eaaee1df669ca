"""Moved to :mod:`.loading`; for rooms that still import it from here."""

from .loading import corpus_of, translation_direction  # noqa: F401
