"""α-entmax and its loss: public functions with interchangeable implementations; depends on torch only."""

from .loss import entmax_loss, entmax_loss_and_support
from .op import entmax, has_native, onnx_translations

__all__ = [
    "entmax",
    "entmax_loss",
    "entmax_loss_and_support",
    "has_native",
    "onnx_translations",
]
