"""A normalizer that the package does not have, added as CONTRIBUTING.md says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from user_dir.attention.normalizers import NORMALIZERS, Normalizer, register


class OwnNormalizer(Normalizer):
    """Sigmoid attention: every weight by itself."""

    name, title = "own", "one's own"
    equation = "1 / (1 + exp(−s))"
    source = "[Ramapuram et al. 2024](https://arxiv.org/abs/2409.04431), equation 3"

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(scores)


@contextmanager
def registered() -> Iterator[type[Normalizer]]:
    """While open, ``--attention-normalizer own`` exists."""
    yield register(OwnNormalizer)
    del NORMALIZERS[OwnNormalizer.name]
