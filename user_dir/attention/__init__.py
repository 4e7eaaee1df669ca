"""Attention with α-entmax on tensors, and the α of its heads; depends on torch only."""

from ..attention_types import ATTENTION_TYPES
from .alpha import Alpha, AlphaConfig
from .op import BACKENDS, attention, no_fused_kernels, supports_fused

__all__ = [
    "ATTENTION_TYPES",
    "BACKENDS",
    "Alpha",
    "AlphaConfig",
    "attention",
    "no_fused_kernels",
    "supports_fused",
]
