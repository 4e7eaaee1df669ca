"""α-entmax: one public function over interchangeable implementations; needs torch alone."""

from .op import attention_weights, entmax, has_native

__all__ = ["attention_weights", "entmax", "has_native"]
