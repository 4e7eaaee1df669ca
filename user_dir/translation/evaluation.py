"""Moved to :mod:`.evaluate`; for rooms that still import it from here."""

from .evaluate import Evaluation, Options, evaluate  # noqa: F401
