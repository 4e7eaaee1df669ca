"""fairseq's models with α-entmax attention: the Transformer and the language model."""

from types import SimpleNamespace

import numpy as np

from .language_model import AdaptivelySparseLanguageModel
from .latent_alignment import LatentAlignment
from .multihead_attention import EntmaxMultiheadAttention, causal_mask
from .transformer import AdaptivelySparseTransformerModel

__all__ = [
    "AdaptivelySparseLanguageModel",
    "AdaptivelySparseTransformerModel",
    "EntmaxMultiheadAttention",
    "LatentAlignment",
    "causal_mask",
]

if not hasattr(np, "compat"):  # numpy 2 lacks what fairseq uses when a language model samples
    np.compat = SimpleNamespace(long=int)
