"""The few shapes that batches are padded to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

MOST_PADDING = 0.1
"""The largest share of tokens that shapes may add to those of the batches."""
MOST_SHAPES = 64
"""Bounds the time that captures take, and the memory of graphs, which is some MiB for each."""

Shape = tuple[int, ...]  # rows, and the length of each side


def shapes_of(dataset, batches: Iterable[Sequence[int]]) -> list[Shape]:
    """The shapes for the batches of one of fairseq's datasets; none if it does not tell its lengths."""
    lengths = getattr(dataset, "sizes", None)
    if not isinstance(lengths, np.ndarray) or lengths.ndim > 2:
        return []
    lengths = lengths.reshape(len(lengths), -1)
    found = [(len(batch), *lengths[batch].max(0)) for batch in batches if len(batch)]
    return choose(np.array(found, dtype=np.int64)) if found else []


def choose(batches: np.ndarray, most: int = MOST_SHAPES, padding: float = MOST_PADDING) -> list[Shape]:
    """Shapes for batches (N, 1 + sides), each of rows and lengths, smallest first.

    All batches begin in one box, whose largest sizes are its shape. The cut of a box that saves most padding
    is made, until padding adds at most ``padding`` to the tokens or there are ``most`` boxes. Boxes that then
    pad most are left out until it does; their batches fit a larger shape, or none.
    """
    batches, counts = np.unique(batches, axis=0, return_counts=True)
    allowed = padding * (counts * tokens(batches)).sum()
    boxes = [Box(batches, counts)]
    while sum(box.padding for box in boxes) > allowed and len(boxes) < most:
        box = max(boxes, key=lambda box: box.saved)
        if not box.saved:
            break
        boxes.remove(box)
        boxes += box.halves()
    boxes.sort(key=lambda box: box.padding)
    while sum(box.padding for box in boxes) > allowed:
        boxes.pop()
    return sorted({box.shape for box in boxes}, key=_size)


def fitting(shapes: Iterable[Shape], batch: Shape, padding: float = 1.0) -> Shape | None:
    """The smallest shape that a batch fits; none if there is none that adds at most ``padding`` to it."""
    fits = (each for each in shapes if len(each) == len(batch) and all(map(int.__ge__, each, batch)))
    best = min(fits, key=_size, default=None)
    return None if best is None or _size(best) > (1 + padding) * _size(batch) else best


def tokens(batches: np.ndarray) -> np.ndarray:
    """The tokens of batches (..., 1 + sides), padding included (...)."""
    return batches[..., 0] * batches[..., 1:].sum(-1)


def _size(shape: Shape) -> int:
    return shape[0] * sum(shape[1:])


class Box:
    """Batches (N, 1 + sides), each occurring as often as ``counts`` says, that get the same shape."""

    def __init__(self, batches: np.ndarray, counts: np.ndarray):
        self.batches, self.counts = batches, counts
        corner = batches.max(0)
        self.shape: Shape = tuple(corner.tolist())
        self.padding = int((counts * (tokens(corner) - tokens(batches))).sum())
        self.saved, self.below = 0, np.zeros(len(batches), dtype=bool)  # by the best cut, and what is below
        for side in range(batches.shape[1]):
            self._cut(side)

    def _cut(self, side: int) -> None:
        """Take the best cut of one side if it saves more than those before."""
        order = np.argsort(self.batches[:, side], kind="stable")
        sizes, counts = self.batches[order], self.counts[order]
        upwards = tokens(np.maximum.accumulate(sizes)) * counts.cumsum()
        downwards = tokens(np.maximum.accumulate(sizes[::-1])) * counts[::-1].cumsum()
        saved = upwards[-1] - upwards[:-1] - downwards[::-1][1:]
        saved[sizes[1:, side] == sizes[:-1, side]] = 0
        if len(saved) and saved.max() > self.saved:
            at = saved.argmax()
            self.saved, self.below = int(saved[at]), self.batches[:, side] <= sizes[at, side]

    def halves(self) -> list[Box]:
        """Both sides of the best cut."""
        return [Box(self.batches[part], self.counts[part]) for part in (self.below, ~self.below)]
