"""The attention normalizers: a file for each, and a line here that registers it."""

from . import alpha_entmax, fixed_patterns, rela  # noqa: F401
from .base import NORMALIZERS, Normalizer, register

__all__ = ["NORMALIZERS", "Normalizer", "register"]
