"""The few shapes that batches are padded to, and buffers of these shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

MOST_PADDING = 0.1
"""The most padding that shapes may add, as a share of the batches' tokens."""
MOST_SHAPES = 64
"""Bounds the time that captures take, and the memory of graphs, which is some MiB for each."""

SIDES = {"src_tokens": 1, "prev_output_tokens": -1, "target": -1}  # the index of their length in a Shape
INPUTS = {"src_tokens", "src_lengths", "prev_output_tokens"}
BATCH = {"id", "nsentences", "ntokens", "net_input", "target"}

Shape = tuple[int, ...]  # rows, and the length of each side


def shapes_of(dataset, batches: Iterable[Sequence[int]]) -> list[Shape]:
    """The shapes for the batches of one of fairseq's datasets; none if it does not tell its lengths."""
    lengths = getattr(dataset, "sizes", None)
    if not isinstance(lengths, np.ndarray) or lengths.ndim > 2:
        return []
    lengths = lengths.reshape(len(lengths), -1)
    sizes = [(len(batch), *lengths[batch].max(0)) for batch in batches if len(batch)]
    return choose(np.array(sizes, dtype=np.int64)) if sizes else []


def choose(batches: np.ndarray, most: int = MOST_SHAPES) -> list[Shape]:
    """Shapes for batches (N, 1 + sides), each of rows and lengths, smallest first.

    All batches begin in one box, whose largest sizes are its shape. The cut that saves most padding is made,
    again and again, until padding adds at most MOST_PADDING to the tokens or there are ``most`` boxes. If it
    still adds more, the boxes with most padding are dropped; their batches get a larger shape, or none.
    """
    batches, counts = np.unique(batches, axis=0, return_counts=True)
    allowed = MOST_PADDING * (counts * tokens(batches)).sum()
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
    """The smallest shape that a batch fits; None if none fits, or it adds more than the share ``padding``."""
    fits = (shape for shape in shapes if len(shape) == len(batch) and all(map(int.__ge__, shape, batch)))
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
        self.saved, self.below = 0, np.zeros(len(batches), dtype=bool)  # by the best cut; batches below it
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


def unknown_entry(sample: dict) -> str | None:
    """Why a batch cannot be padded here; None if it can, because it holds only tokens, lengths and counts."""
    unknown = [name for name in sample if name not in BATCH]
    unknown += [name for name in sample["net_input"] if name not in INPUTS]
    return f"a batch holds {unknown[0]}" if unknown else None


def shape_of(sample: dict) -> Shape:
    """Rows and lengths of a batch; a language model has one side."""
    inputs, target = sample["net_input"], sample["target"]
    if "prev_output_tokens" not in inputs:
        return tuple(target.shape)
    return target.size(0), inputs["src_tokens"].size(1), target.size(1)


class StaticBatch:
    """A batch of a fixed shape at a fixed place.

    Rows without a sentence have ``</s>`` as their only input, so that every query has a key, and a target of
    padding, so that they have no weight in the loss.

    Args:
        sample: a batch with the same entries as later ones.
        shape: rows and lengths.
        pad: the index of padding.
        eos: the index of ``</s>``.
        left: names of the tokens that are padded on the left.
    """

    def __init__(self, sample: dict, shape: Shape, pad: int, eos: int, left: frozenset[str]):
        self.pad, self.eos, self.left = pad, eos, left
        self.tokens = {
            name: tokens.new_empty(shape[0], shape[SIDES[name]]) for name, tokens in _padded(sample).items()
        }
        inputs = {name: place for name, place in self.tokens.items() if name != "target"}
        self.lengths = None
        if "src_lengths" in sample["net_input"]:
            self.lengths = inputs["src_lengths"] = sample["net_input"]["src_lengths"].new_empty(shape[0])
        self.sample = {"net_input": inputs, "target": self.tokens["target"], "ntokens": 0, "nsentences": 0}

    def fill(self, sample: dict) -> None:
        """Copy a batch that fits, and pad it, without waiting for the device."""
        for name, tokens in _padded(sample).items():
            (rows, length), place = tokens.shape, self.tokens[name]
            on_left = name in self.left
            place.fill_(self.pad)
            place[:rows, -length:].copy_(tokens) if on_left else place[:rows, :length].copy_(tokens)
            if name != "target":
                place[rows:, -1 if on_left else 0].fill_(self.eos)
        if self.lengths is not None:
            self.lengths.fill_(1)
            self.lengths[: sample["target"].size(0)].copy_(sample["net_input"]["src_lengths"])


def _padded(sample: dict) -> dict[str, Tensor]:
    """The tokens of a batch, by name."""
    everything = {**sample["net_input"], "target": sample["target"]}
    return {name: everything[name] for name in SIDES if everything.get(name) is not None}
