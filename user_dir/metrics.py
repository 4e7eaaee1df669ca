"""Moved to :mod:`.translation.scoring`."""

from .translation.scoring import bleu_settings, make_bleu, make_ter  # noqa: F401
