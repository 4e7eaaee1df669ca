"""Attention with α-entmax on tensors, and the α of its heads; depends on torch only."""

from .alpha import Alpha, AlphaConfig
from .dispatch import BACKENDS, attention, unavailable
from .inputs import AttentionInputs
from .layer import EntmaxAttention
from .types import ATTENTION_TYPES

__all__ = [
    "ATTENTION_TYPES",
    "BACKENDS",
    "Alpha",
    "AlphaConfig",
    "AttentionInputs",
    "EntmaxAttention",
    "attention",
    "unavailable",
]
