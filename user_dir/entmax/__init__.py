"""α-entmax: one public op over interchangeable implementations; plain torch, knows nothing of fairseq."""

from .op import attention_weights, entmax, has_native

__all__ = ["attention_weights", "entmax", "has_native"]
