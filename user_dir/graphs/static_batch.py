"""Batches copied into buffers of a larger shape."""

from __future__ import annotations

from torch import Tensor

from .shapes import Shape

SIDES = {"src_tokens": 1, "prev_output_tokens": -1, "target": -1}  # the side, in a Shape, of what is padded
INPUTS = {"src_tokens", "src_lengths", "prev_output_tokens"}
BATCH = {"id", "nsentences", "ntokens", "net_input", "target"}


def unknown_entry(sample: dict) -> str | None:
    """Why a batch cannot be padded here; None if it can: if it holds tokens and their numbers alone."""
    inputs = sample.get("net_input")
    if not isinstance(inputs, dict) or not isinstance(sample.get("target"), Tensor):
        return "a batch has no inputs, or no target"
    unknown = [name for name in sample if name not in BATCH] + [name for name in inputs if name not in INPUTS]
    if unknown:
        return f"a batch holds {unknown[0]}"
    return None if "src_tokens" in inputs else "a batch holds no src_tokens"


def shape_of(sample: dict) -> Shape:
    """Rows and lengths of a batch; a language model has one side."""
    inputs, target = sample["net_input"], sample["target"]
    source = inputs["src_tokens"].size(1)
    return (
        (*target.shape,) if "prev_output_tokens" not in inputs else (target.size(0), source, target.size(1))
    )


class StaticBatch:
    """A batch of a fixed shape at a fixed place.

    Rows without a sentence have ``</s>`` as their only input, so that every query has a key, and a target of
    padding, so that they have no weight in the loss.

    Args:
        sample: a batch that holds what later ones do.
        shape: rows and lengths.
        pad: the index of padding.
        eos: the index of ``</s>``.
        left: names of what is padded on the left.
    """

    def __init__(self, sample: dict, shape: Shape, pad: int, eos: int, left: frozenset[str]):
        self.pad, self.eos, self.left = pad, eos, left
        self.tokens = {
            name: given.new_empty(shape[0], shape[SIDES[name]]) for name, given in _padded(sample).items()
        }
        inputs = {name: each for name, each in self.tokens.items() if name != "target"}
        self.lengths = None
        if "src_lengths" in sample["net_input"]:
            self.lengths = inputs["src_lengths"] = sample["net_input"]["src_lengths"].new_empty(shape[0])
        self.sample = {"net_input": inputs, "target": self.tokens["target"], "ntokens": 0, "nsentences": 0}

    def fill(self, sample: dict) -> None:
        """Copy a batch that fits, and pad it; nothing waits for the device."""
        for name, given in _padded(sample).items():
            (rows, length), place = given.shape, self.tokens[name]
            on_left = name in self.left
            place.fill_(self.pad)
            place[:rows, -length:].copy_(given) if on_left else place[:rows, :length].copy_(given)
            if name != "target":
                place[rows:, -1 if on_left else 0].fill_(self.eos)
        if self.lengths is not None:
            self.lengths.fill_(1)
            self.lengths[: sample["target"].size(0)].copy_(sample["net_input"]["src_lengths"])


def _padded(sample: dict) -> dict[str, Tensor]:
    """The tokens of a batch, by name."""
    everything = {**sample["net_input"], "target": sample["target"]}
    return {name: everything[name] for name in SIDES if everything.get(name) is not None}
