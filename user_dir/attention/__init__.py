"""Attention as tensors in, tensors out: knows α-entmax, not fairseq."""

from .alpha import ATTENTION_TYPES, Alpha, AlphaConfig
from .op import BACKENDS, attention

__all__ = ["ATTENTION_TYPES", "BACKENDS", "Alpha", "AlphaConfig", "attention"]
