"""Whether a replay gives what the same batch gives without a graph."""

from __future__ import annotations

import torch
from torch import Tensor

# The same operations, but some sums in any order; of losses, and of gradients by the norm of each.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
# A gradient that is 0 but for rounding, such as that of a bias of keys, may be off by as much as one of which
# the norm is this share of the norm of all.
ZERO = 1e-3


def is_finite(loss: Tensor, gradients: list[Tensor]) -> bool:
    """Whether a loss and its gradients can be compared."""
    return bool(torch.stack([each.isfinite().all() for each in (loss, *gradients)]).all())


def disagreement(loss: Tensor, gradients: list[Tensor], expected: tuple[Tensor, list[Tensor]]) -> str | None:
    """How a loss and its gradients differ from the expected ones; None if they do not."""
    tolerance = TOLERANCE[gradients[0].dtype]
    if not (loss - expected[0]).abs() <= tolerance * expected[0].abs():
        return f"the loss is {loss.item():.6g}, not {expected[0].item():.6g}"
    norms = torch.stack([torch.linalg.vector_norm(each.double()) for each in expected[1]])
    errors = torch.stack(
        [
            torch.linalg.vector_norm(found.double() - right.double())
            for found, right in zip(gradients, expected[1])
        ]
    )
    error = (errors / (norms + ZERO * norms.norm())).max().item()
    return None if error <= tolerance else f"a gradient is off by {error:.2g} of its norm"
