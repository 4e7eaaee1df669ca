"""α-entmax: one public function with interchangeable implementations; depends on torch only."""

from .op import attention_weights, entmax, has_native

__all__ = ["attention_weights", "entmax", "has_native"]
