"""The registered model and its architectures.

fairseq imports every module of this folder for what it registers.
"""

from . import architectures
from .adaptively_sparse_transformer import AdaptivelySparseTransformerModel

__all__ = ["AdaptivelySparseTransformerModel", "architectures"]
