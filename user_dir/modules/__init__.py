"""fairseq's attention and Transformer layers with α-entmax."""

from .copy_gate import CopyGate
from .latent_context_attention import LatentAlignment
from .multihead_attention import EntmaxMultiheadAttention, causal_mask
from .output_normalizer import OutputNormalizer, SparseOutput
from .segmented_positions import SegmentedPositions
from .transformer_layer import AdaptivelySparseDecoderLayer, AdaptivelySparseEncoderLayer

__all__ = [
    "AdaptivelySparseDecoderLayer",
    "AdaptivelySparseEncoderLayer",
    "CopyGate",
    "EntmaxMultiheadAttention",
    "LatentAlignment",
    "OutputNormalizer",
    "SegmentedPositions",
    "SparseOutput",
    "causal_mask",
]
