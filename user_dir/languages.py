"""Moved to :mod:`.corpora.languages`."""

from .corpora.languages import UNSPACED_CHARACTER, UNSPACED_SCRIPTS, Language, language, unspaced_script

__all__ = ["UNSPACED_CHARACTER", "UNSPACED_SCRIPTS", "Language", "language", "unspaced_script"]
