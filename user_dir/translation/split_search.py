"""Moved to :mod:`.evaluate`; for rooms that still import it from here."""

from .evaluate import BeamSearch, translate_split  # noqa: F401
