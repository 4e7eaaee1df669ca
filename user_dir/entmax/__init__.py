"""α-entmax: one public op over interchangeable implementations; plain torch, knows nothing of fairseq."""

from .op import entmax

__all__ = ["entmax"]
