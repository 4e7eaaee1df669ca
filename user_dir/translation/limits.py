"""Moved to :mod:`.loading`; for rooms that still import it from here."""

from .loading import MAX_LEN_B as RELEASED  # noqa: F401
from .loading import Limit, translation_limit  # noqa: F401
