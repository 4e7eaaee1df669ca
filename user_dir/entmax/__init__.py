"""α-entmax and its loss: public functions with interchangeable implementations; depends on torch only."""

from .loss import entmax_loss, entmax_loss_and_support
from .op import entmax, has_native, onnx_translations
from .package_names import (
    Entmax15,
    Entmax15Loss,
    EntmaxBisect,
    EntmaxBisectLoss,
    Sparsemax,
    SparsemaxLoss,
    entmax15,
    entmax15_loss,
    entmax_bisect,
    entmax_bisect_loss,
    sparsemax,
    sparsemax_loss,
)

__all__ = [
    "Entmax15",
    "Entmax15Loss",
    "EntmaxBisect",
    "EntmaxBisectLoss",
    "Sparsemax",
    "SparsemaxLoss",
    "entmax",
    "entmax15",
    "entmax15_loss",
    "entmax_bisect",
    "entmax_bisect_loss",
    "entmax_loss",
    "entmax_loss_and_support",
    "has_native",
    "onnx_translations",
    "sparsemax",
    "sparsemax_loss",
]
