"""Gradients at fixed places, to which graphs add."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Gradients:
    """The gradients of those parameters that get one.

    fairseq sets ``.grad`` to None before each update, and autograd would then put each gradient at a new
    place. Parameters without a gradient keep none, so that optimizers go on leaving them alone.
    """

    def __init__(self) -> None:
        self.places: dict[nn.Parameter, Tensor] = {}

    def restore(self) -> bool:
        """Put every gradient in its place, None as 0; whether all were None, as when an update begins."""
        none = [parameter for parameter in self.places if parameter.grad is None]
        if none:
            torch._foreach_zero_([self.places[parameter] for parameter in none])
        for parameter, place in self.places.items():
            if parameter.grad is not None and parameter.grad is not place:
                place.copy_(parameter.grad)
            parameter.grad = place
        return len(none) == len(self.places)

    def adopt(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Give a place to gradients that have none; whether there were any."""
        new = [each for each in parameters if each.grad is not None and each not in self.places]
        for parameter in new:
            self.places[parameter] = torch.empty_like(parameter).copy_(parameter.grad)
            parameter.grad = self.places[parameter]
        return bool(new)

    def clear(self, parameters: Iterable[nn.Parameter]) -> None:
        """Forget what was added to the gradients of all parameters."""
        for parameter in parameters:
            parameter.grad = None
        self.restore()

    def current(self) -> list[Tensor]:
        """All gradients, in their places."""
        return list(self.places.values())

    def copies(self) -> list[Tensor]:
        """Copies of all gradients."""
        return [each.clone() for each in self.current()]

    def set(self, values: list[Tensor]) -> None:
        """Replace all gradients."""
        torch._foreach_copy_(self.current(), values)
