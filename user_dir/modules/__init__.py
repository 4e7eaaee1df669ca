"""fairseq's attention and Transformer layers with α-entmax."""

from .multihead_attention import EntmaxMultiheadAttention, causal_mask
from .segmented_positions import SegmentedPositions
from .transformer_layer import AdaptivelySparseDecoderLayer, AdaptivelySparseEncoderLayer

__all__ = [
    "AdaptivelySparseDecoderLayer",
    "AdaptivelySparseEncoderLayer",
    "EntmaxMultiheadAttention",
    "SegmentedPositions",
    "causal_mask",
]
