"""Attention as tensors in, tensors out: knows α-entmax, not fairseq."""

from ..attention_types import ATTENTION_TYPES
from .alpha import Alpha, AlphaConfig
from .op import BACKENDS, attention

__all__ = ["ATTENTION_TYPES", "BACKENDS", "Alpha", "AlphaConfig", "attention"]
