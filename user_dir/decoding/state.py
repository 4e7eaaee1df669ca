"""Encoded sentences, and unfinished translations of them in one model."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .cpu_steps import Cache


@dataclass
class Memory:
    """Encoded sentences without padding.

    Attributes:
        rows: (N, C), the sentences' tokens one after the other.
        places: int32 (B, S), the rows of each sentence, in order.
        counts: int32 (B,), how many there are.
        tokens: (B, S′), the sentences as they were given.
        there: (B, S′), which of the tokens the encoder saw.
    """

    rows: Tensor
    places: Tensor
    counts: Tensor
    tokens: Tensor
    there: Tensor


@dataclass
class State:
    """Hypotheses half-way: caches, and where each hypothesis finds its own rows in them.

    A step adds a slab of keys and values to each layer, a row per hypothesis. No row is ever moved or copied:
    when hypotheses are reordered, ``places`` is.

    Attributes:
        context: by layer, keys and values of the source (N, 2·C).
        memory: where the rows of each sentence lie in ``context``.
        slabs: by layer, keys and values (R, 2·C) of each position.
        places: int32 (R, positions), the row of each hypothesis in the slab of each position.
        sentences: int32 (R,), the sentence of each hypothesis.
        attention: what each hypothesis attends to at each position, mean over heads (R, S), in slabs as well;
            None if nobody asks.
        sides: what the output layer keeps of the source.
    """

    context: list[Tensor]
    memory: Memory
    slabs: list[list[Tensor]]
    places: Tensor
    sentences: Tensor
    attention: list[Tensor] | None = None
    sides: tuple[Tensor, ...] = field(default=())

    def source(self, layer: int) -> Cache:
        """Keys and values of the source."""
        places, counts = self.memory.places, self.memory.counts
        return Cache([self.context[layer]], places, counts, self.sentences, places.size(1), single=True)

    def history(self, layer: int) -> Cache:
        """Keys and values of the translations so far."""
        return Cache(self.slabs[layer], self.places, None, None, self.places.size(1), single=False)

    def reorder(self, order: Tensor) -> None:
        """Let hypothesis i continue hypothesis ``order[i]``, int64 (R′,)."""
        self.sentences = self.sentences[order]
        self.places = self.places[order]

    def attended(self, hypothesis: int) -> Tensor:
        """What a hypothesis attends to, in fairseq's form: (S′, positions); empty if it is not known."""
        if not self.attention:
            return torch.empty(0)
        memory, sentence = self.memory, int(self.sentences[hypothesis])
        there, count = memory.there[sentence], int(memory.counts[sentence])
        weights = [slab[place, :count] for slab, place in zip(self.attention, self.places[hypothesis])]
        whole = weights[0].new_zeros(len(there), len(weights))
        whole[there] = torch.stack(weights, dim=1)
        return whole
