"""The expected loss over a sparse distribution, exactly."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .score_checks import check_inputs
from .support import Support

LossFunction = Callable[..., Tensor]


def marginalise(loss_function: LossFunction, support: Support, *inputs: Tensor) -> Tensor:
    """Σ π(z) loss(z) for each example; the loss function is called once, on all pairs with π(z) > 0.

    Args:
        loss_function: called with the choices of the N pairs, (N,) or (N, D), and the inputs of the example
            of each pair, (N, …); returns the losses (N,), which may be integers or booleans.
        support: the distributions of B examples.
        inputs: tensors (B, …).

    Returns:
        (B,), in the dtype that the weights and the losses promote to; differentiable in the weights of the
        support and in what the losses depend on.

    Raises:
        ValueError: an input does not have B entries, or the loss function does not return (N,).

    Source: Correia et al. 2020 (https://arxiv.org/abs/2007.01919), equation 3.
    """
    check_inputs(inputs, len(support))
    # Unlike indexing, index_select has a fast backward on a CPU.
    gathered = [each.index_select(0, support.batch) for each in inputs]
    losses = loss_function(support.choices, *gathered)
    if losses.shape != support.weights.shape:
        raise ValueError(
            f"the loss function must return one loss for each of the {support.weights.numel()} pairs, "
            f"not shape {tuple(losses.shape)}"
        )
    return support.expectation(losses)
