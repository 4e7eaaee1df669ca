"""A dial for sparsity: it moves the α of each head until a query attends to a given number of keys."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, distributed

from .alpha import Alpha


def keys_per_query(weights: Tensor, query_padding_mask: Tensor | None = None) -> Tensor:
    """The mean number of keys with a weight above 0 over the queries of a batch: (H,) in float64.

    Args:
        weights: (B, H, T, S). Queries without any key do not count.
        query_padding_mask: (B, T), true where a query is padding, which does not count.
    """
    keys = (weights > 0).sum(-1)  # (B, H, T)
    if query_padding_mask is not None:
        keys = keys.masked_fill(query_padding_mask[:, None], 0)
    return keys.sum((0, 2)).double() / (keys > 0).sum((0, 2)).clamp_min(1)


class Dial:
    """Moves the α of each head towards a number of keys per query, as long as the loss allows it.

    In the first ``HORIZON`` updates no α moves; their mean loss counts as that of the dense model. Then,
    every ``EVERY`` updates, α rises by ``STEP`` in heads with more keys per query than the target, and falls
    in all others. Every α falls while the running loss, over about ``HORIZON`` updates, is too high.

    Before an update call :meth:`prepare`, after it :meth:`observe`.

    Args:
        alphas: learned α's, which start near 1. The dial turns off their gradients. In each forward
            pass, attention appends :func:`keys_per_query` to ``alpha.keys`` if that is not None.
        target: keys per query, above 1.
        max_loss: how much the running loss may exceed the dense model's loss, as a share of the latter.

    Raises:
        ValueError: an argument is out of range, or no α is learned.
    """

    EVERY, HORIZON, STEP = 10, 100, 0.02

    def __init__(self, alphas: Iterable[Alpha], target: float, max_loss: float):
        if not target > 1:
            raise ValueError(f"the number of keys per query must be above 1, not {target:g}")
        if not max_loss >= 0:
            raise ValueError(f"the share of the loss must be at least 0, not {max_loss:g}")
        self.parameters = {alpha: alpha.a for alpha in alphas if alpha.a is not None}
        if not self.parameters:
            raise ValueError("keys per query are set by learned α's, and there are none")
        self.target, self.max_loss = target, max_loss
        self.loss: float | None = None  # the running loss
        self.dense_loss: float | None = None
        for a in self.parameters.values():
            a.requires_grad_(False)

    def prepare(self, update: int, every: int = EVERY) -> None:
        """Let attention count keys in the coming update, counted from 1, if α's move after it."""
        due = update > self.HORIZON and update % every == 0
        for alpha in self.parameters:
            alpha.keys = [] if due else None

    def observe(self, loss: float, update: int, updates: int = 1) -> None:
        """Take in the mean loss of the last ``updates`` updates, up to ``update``; move α's if due."""
        share = min(1.0, updates / min(update, self.HORIZON))
        self.loss = loss if self.loss is None else self.loss + share * (loss - self.loss)
        if update <= self.HORIZON or self.dense_loss is None:
            self.dense_loss = self.loss
        too_high = self.loss > (1 + self.max_loss) * self.dense_loss
        for alpha, a in self.parameters.items():
            if alpha.keys:
                # if heads share α, means: modules may have unequal numbers of heads
                own = [keys if len(a) > 1 else keys.mean(0, keepdim=True) for keys in alpha.keys]
                keys, alpha.keys = torch.stack(own).mean(0), None
                if distributed.is_available() and distributed.is_initialized():
                    distributed.all_reduce(keys)
                    keys /= distributed.get_world_size()
                self._move(alpha, a, keys, too_high)

    @torch.no_grad()
    def _move(self, alpha: Alpha, a: Tensor, keys: Tensor, down: bool) -> None:
        steps = torch.where((keys > self.target) & (not down), self.STEP, -self.STEP)
        room = alpha.high - alpha.low
        share = ((alpha().flatten() + steps - alpha.low) / room).clamp(0.005, 0.995)
        a.copy_(torch.logit(share) / alpha.multiplier)
