"""What a search on a GPU remembers: tensors of fixed shapes at fixed addresses, as a captured graph needs."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .native import hypothesis

LEAST_SENTENCES, LEAST_SOURCE, LEAST_POSITIONS = 8, 16, 32


class Shape(NamedTuple):
    """What the tensors of a step have room for."""

    sentences: int  # B
    source: int  # S, positions of the source
    positions: int  # T, positions of translations


class Sizes(NamedTuple):
    """What does not change between batches."""

    beam: int  # K
    layers: int  # of the decoder
    channels: int  # C, of its layers
    dtype: torch.dtype
    scores: torch.dtype  # of sums of log-probabilities


def bucket(count: int, least: int) -> int:
    """The smallest of ``least`` · (1, 1.5, 2, 3, 4, 6, …) that is at least ``count``."""
    size = least
    while size < count:
        size = size * 3 // 2 if size * 3 // 2 >= count else size * 2
    return size


class Arena:
    """Named blocks of memory whose addresses change only when they grow; growing keeps the contents.

    Attributes:
        moves: how often an address has changed.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._flat: dict[str, Tensor] = {}
        self.moves = 0

    def view(self, name: str, dtype: torch.dtype, *shape: int) -> Tensor:
        """The beginning of the memory of this name as a tensor of this shape; new memory is 0."""
        size, kept = math.prod(shape), self._flat.get(name)
        if kept is None or kept.numel() < size:
            grown = torch.zeros(size, dtype=dtype, device=self.device)
            if kept is not None:
                grown[: kept.numel()].copy_(kept)
            self._flat[name] = kept = grown
            self.moves += 1
        return kept[:size].view(shape)


class State:
    """The R = B·K hypotheses of a batch, and what the next step needs of them, in an arena.

    When hypotheses are reordered, only ``places`` changes, and no row of keys and values moves. In memory, a
    state of fewer positions is the beginning of one of more, so that growing does not rearrange anything.

    Attributes:
        sentences: numbers, within the batch, of the sentences in the first places; the rest is filler.
        step: int64 (1,), the position that comes next.
        shortest, longest: int64 (1,), limits of the position of an end.
        tokens: (B, K), the last symbols.
        totals: (B, K), summed log-probabilities.
        finished: (B,), true for sentences whose search has ended, and for filler.
        counts: int64 (B,), how many ended hypotheses there are.
        end_steps, end_parents, end_totals: (B, K), positions, parents and sums of the ended hypotheses.
        symbols, parents, scores: (T, R), for each position the chosen symbol, which of the K hypotheses it
            continues, and the summed log-probability.
        places: int64 (T, R), the rows of each hypothesis in caches flattened to (T·R, 2·C).
        caches: by layer, keys and values of translations (T, R, 2·C).
        context: by layer, keys and values of the source (B, S, 2·C).
        mask: (B, S), true at padding of the source.
        visible: float32 (B, 1), the number of positions of the source without padding.
    """

    def __init__(self, arena: Arena, sizes: Sizes, shape: Shape):
        self.shape, (sentences, source, positions) = shape, shape
        self.sentences: list[int] = []
        self.beam, self.rows = sizes.beam, sentences * sizes.beam
        beams, history = (sentences, sizes.beam), (positions, self.rows)
        view, integer, both, device = arena.view, torch.int64, 2 * sizes.channels, arena.device
        self.step, self.shortest, self.longest = (
            view(name, integer, 1) for name in ("step", "shortest", "longest")
        )
        self.tokens, self.totals = view("tokens", integer, *beams), view("totals", sizes.scores, *beams)
        self.finished = view("finished", torch.bool, sentences)
        self.counts = view("counts", integer, sentences)
        self.end_steps, self.end_parents = (
            view(name, integer, *beams) for name in ("end_steps", "end_parents")
        )
        self.end_totals = view("end_totals", sizes.scores, *beams)
        self.symbols, self.parents, self.places = (
            view(name, integer, *history) for name in ("symbols", "parents", "places")
        )
        self.scores = view("scores", sizes.scores, *history)
        layers = range(sizes.layers)
        self.caches = [view(f"cache {i}", sizes.dtype, *history, both) for i in layers]
        self.context = [view(f"context {i}", sizes.dtype, sentences, source, both) for i in layers]
        self.mask = view("mask", torch.bool, sentences, source)
        self.visible = view("visible", torch.float32, sentences, 1)
        # constants, which a captured graph reads
        self.own = torch.arange(self.rows, device=device)
        self.first_rows = torch.arange(0, self.rows, sizes.beam, device=device)[:, None]
        self.positions = torch.arange(positions, device=device)
        self.candidates = torch.arange(2 * sizes.beam, device=device)

    def _by_sentence(self) -> list[Tensor]:
        ends = [self.counts, self.end_steps, self.end_parents, self.end_totals]
        return [self.tokens, self.totals, self.finished, *ends, self.mask, self.visible, *self.context]

    def _by_position(self) -> list[Tensor]:
        return [self.symbols, self.parents, self.scores]

    def begin(self, padding: Tensor, context: list[Tensor], first: int, limits: tuple[int, int]) -> None:
        """One empty hypothesis for each sentence.

        Args:
            padding: (B′, S′), true at padding of the source; not more than there is room for.
            context: by layer, its keys and values (B′, S′, 2·C).
            first: the symbol before the first position.
            limits: the least and the greatest position of an end.
        """
        count, length = padding.shape
        for tensor, value in zip((self.step, self.shortest, self.longest), (0, *limits)):
            tensor.fill_(value)
        self.tokens.fill_(first)
        self.totals.fill_(-torch.inf)[:, 0] = 0  # all begin alike, so only one may go on
        self.finished.fill_(True)[:count] = False
        self.counts.zero_()
        self.mask.fill_(True)[:count, :length] = padding
        self.visible.copy_((~self.mask).sum(1, keepdim=True))
        for place, layer in zip(self.context, context):
            place.zero_()[:count, :length] = layer
        self.clear(0)

    def clear(self, first: int) -> None:
        """Clear all positions from this one on: a weight of 0 would not hide NaN or infinity left there."""
        for cache in self.caches:
            cache[first:].zero_()
        self._keep_places(first, self.shape.positions)

    def _keep_places(self, first: int, last: int) -> None:
        """Let each hypothesis find its own rows at these positions."""
        self.places[first:last] = self.positions[first:last, None] * self.rows + self.own

    def moved_to(self, smaller: State, kept: Tensor, steps: int) -> None:
        """Move some of the sentences to a smaller state in the same memory.

        Args:
            smaller: a state of another number of sentences, with the same arena.
            kept: int64 (B of ``smaller``,), the places here of the sentences to move.
            steps: how many positions have been computed.
        """
        rows = (self.first_rows[kept] + self.own[: self.beam]).flatten()
        places = self.places[:steps].index_select(1, rows).flatten()
        for old, new in zip(self._by_sentence(), smaller._by_sentence()):
            new.copy_(old.index_select(0, kept))
        for old, new in zip(self._by_position(), smaller._by_position()):
            new[:steps] = old[:steps].index_select(1, rows)
        for old, new in zip(self.caches, smaller.caches):
            new[:steps] = old.flatten(0, 1).index_select(0, places).view_as(new[:steps])
        smaller.clear(steps)
        smaller._keep_places(0, steps)

    def hypotheses(self, steps: int, end: int, power: float, may_fail: bool) -> list[list[dict[str, Tensor]]]:
        """The ended hypotheses of each sentence, on the host, best first.

        Args:
            steps: how many positions have been computed.
            end: the symbol that ends a hypothesis.
            power: scores are divided by the length, with the end, to this power.
            may_fail: hypotheses may end with probability 0; else such an end comes from NaN and is left out.
        """
        counts, end_steps, end_parents, end_totals = (
            ends[: len(self.sentences)].cpu()
            for ends in (self.counts, self.end_steps, self.end_parents, self.end_totals)
        )
        exists = torch.arange(self.beam) < counts[:, None]
        if not may_fail:
            exists &= end_totals.isfinite()
        lengths, parents, totals = (ends[exists] for ends in (end_steps, end_parents, end_totals))
        places = exists.nonzero()[:, 0]
        symbols, sums = self._traced(steps, places, lengths, parents)
        symbols[torch.arange(len(lengths)), lengths] = end
        sums[torch.arange(len(lengths)), lengths] = totals
        scores = totals / (lengths + 1).double().pow(power).to(totals.dtype)
        positional = sums.diff(dim=1, prepend=sums.new_zeros(len(sums), 1))
        made: list[list[dict[str, Tensor]]] = [[] for _ in self.sentences]
        for i, (place, length) in enumerate(zip(places.tolist(), (lengths + 1).tolist())):
            made[place].append(hypothesis(symbols[i, :length], scores[i], positional[i, :length]))
        return [sorted(hypotheses, key=lambda hypothesis: -hypothesis["score"].item()) for hypotheses in made]

    def _traced(self, steps: int, places: Tensor, lengths: Tensor, parents: Tensor) -> tuple[Tensor, Tensor]:
        """Symbols and summed log-probabilities (N, T) of N hypotheses without their ends, traced backwards.

        Args:
            steps: how many positions have been computed, T.
            places: (N,), the place of each hypothesis's sentence.
            lengths: (N,), how many symbols come before the end.
            parents: (N,), which of the K hypotheses the end continues; overwritten.
        """
        symbols, before, scores = (
            rows[:steps].view(steps, -1, self.beam).cpu() for rows in self._by_position()
        )
        whole, sums = symbols.new_zeros(len(lengths), steps), scores.new_zeros(len(lengths), steps)
        for step in range(steps - 1, -1, -1):
            rows = (step < lengths).nonzero().flatten()
            at = step, places[rows], parents[rows]
            whole[rows, step], sums[rows, step] = symbols[at], scores[at]
            parents[rows] = before[at]
        return whole, sums
