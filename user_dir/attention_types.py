"""Moved to :mod:`user_dir.attention.types`."""

from .attention.types import ATTENTION_TYPES, TITLES  # noqa: F401
