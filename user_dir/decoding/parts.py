"""fairseq's layers with other parts, for translation on a CPU.

What a layer computes, and in which order, is said by its own ``forward``. It is called on a copy of the layer
that multiplies by prepared weights, computes sums and LayerNorms in one pass, and has no dropout.
"""

from __future__ import annotations

import copy

from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from .cpu_steps import add_norm
from .products import Product


def with_parts(module: nn.Module, **parts: object) -> nn.Module:
    """A copy of a module with other parts, and without dropout; all else, and the parameters, it shares.

    Parts need not be modules. They are plain attributes, which Python finds faster than those of a module.
    """
    made = copy.copy(module)
    for name, part in module._modules.items():
        vars(made)[name] = _unchanged if isinstance(part, FairseqDropout) else part
    vars(made).update(parts)
    vars(made).pop("forward", None)  # with checkpointed activations it is the original's
    return made


def search_layer(layer: nn.Module, product: type[Product], **attentions: object) -> nn.Module:
    """One of fairseq's layers with other attentions; it may return a :class:`Sum`."""
    relu = layer.activation_fn is nn.functional.relu
    norms = {name: SumNorm(part) for name, part in layer.named_children() if isinstance(part, nn.LayerNorm)}
    return with_parts(
        layer,
        fc1=product(layer.fc1, relu=relu),
        fc2=product(layer.fc2),
        activation_fn=_unchanged if relu else layer.activation_fn,
        residual_connection=Sum,
        **norms,
        **attentions,
    )


def _unchanged(x: Tensor) -> Tensor:
    return x


class Sum:
    """update + residual, which the LayerNorm that follows computes, in place of the residual."""

    def __init__(self, update: Tensor, residual: Tensor | Sum):
        self.update = update
        self.residual = residual if isinstance(residual, Tensor) else residual.residual


class SumNorm:
    """A LayerNorm of a sum or of a tensor (…, C); or, without one, the sum."""

    def __init__(self, norm: nn.LayerNorm | None):
        self._norm = norm

    def __call__(self, x: Tensor | Sum) -> Tensor:
        """The same shape as x, of which the first summand is changed."""
        residual, update = (x, None) if isinstance(x, Tensor) else (x.residual, x.update)
        if self._norm is not None:
            return add_norm(residual, update, self._norm)
        return residual if update is None else residual.add_(update)
