"""scikit-learn's digits: 1797 pictures of 8 × 8 pixels in 17 grey levels, of ten classes."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

PIXELS, GREY_LEVELS, CLASSES = 64, 17, 10
_SIZES = {"train": 1197, "valid": 300, "test": 300}


def digits() -> dict[str, tuple[Tensor, Tensor]]:
    """Pictures (N, 64) with values 0 … 16 and classes (N,) of each part; the division never changes."""
    loaded = load_digits()
    order = torch.randperm(len(loaded.target), generator=torch.Generator().manual_seed(0))
    pictures = torch.tensor(loaded.data, dtype=torch.float32)[order]
    classes = torch.tensor(loaded.target)[order]
    sizes = list(_SIZES.values())
    return dict(zip(_SIZES, zip(pictures.split(sizes), classes.split(sizes))))


def pixel_losses(logits: Tensor, pictures: Tensor) -> Tensor:
    """−log p(x) in nats (N,) for logits of the grey levels (N, 64 · 17) of pictures (N, 64)."""
    losses = functional.cross_entropy(
        logits.view(-1, GREY_LEVELS), pictures.reshape(-1).long(), reduction="none"
    )
    return losses.view(-1, PIXELS).sum(1)
