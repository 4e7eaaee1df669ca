"""Attention with α-entmax on tensors, and the α of its heads; depends on torch only."""

from ..attention_types import ATTENTION_TYPES
from .alpha import Alpha
from .alpha_config import AlphaConfig
from .dispatch import BACKENDS, attention, unavailable, unsupported
from .inputs import AttentionInputs
from .layer import EntmaxAttention

__all__ = [
    "ATTENTION_TYPES",
    "BACKENDS",
    "Alpha",
    "AlphaConfig",
    "AttentionInputs",
    "EntmaxAttention",
    "attention",
    "unavailable",
    "unsupported",
]
