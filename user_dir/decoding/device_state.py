"""What a search on a GPU remembers: tensors of fixed shapes at fixed addresses, as a captured graph needs."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LEAST_SENTENCES, LEAST_SOURCE, LEAST_POSITIONS = 8, 16, 32


class Shape(NamedTuple):
    """What the tensors of a step have room for."""

    sentences: int  # B
    source: int  # S, positions of the source
    positions: int  # T, positions of translations
    prescribed: bool = False  # whether beginnings of translations are
    ngram: int = 0  # no n-gram of this many symbols may come twice, if above 0


class Sizes(NamedTuple):
    """What does not change between batches."""

    beam: int  # K
    models: int
    channels: tuple[int, ...]  # C, of the layers of all models
    widths: tuple[int, ...]  # of what these, and latent alignments, keep of the source
    attends: bool  # what hypotheses attend to is asked for
    dtype: torch.dtype
    scores: torch.dtype  # of sums of log-probabilities


def bucket(count: int, least: int) -> int:
    """The first number of least · (1, 1.5, 2, 3, 4, 6, …) from ``count`` on."""
    size = least
    while size < count:
        size = size * 3 // 2 if size * 3 // 2 >= count else size * 2
    return size


class Arena:
    """Named memory whose address changes only when it must grow, which keeps the contents.

    Attributes:
        moves: how often an address has changed.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._flat: dict[str, Tensor] = {}
        self.moves = 0

    def view(self, name: str, dtype: torch.dtype, *shape: int) -> Tensor:
        """The beginning of the memory of this name as a tensor of this shape; new memory is 0."""
        size, kept = math.prod(shape), self._flat.get(name)
        if kept is None or kept.numel() < size:
            grown = torch.zeros(size, dtype=dtype, device=self._device)
            if kept is not None:
                grown[: kept.numel()].copy_(kept)
            self._flat[name] = kept = grown
            self.moves += 1
        return kept[:size].view(shape)


class State:
    """The hypotheses of a batch, R = B·K, and what the next step needs of them, in an arena.

    No row of keys and values is moved when hypotheses are reordered; ``places`` is. States of more positions
    begin with those of fewer, so nothing is copied when translations grow.

    Attributes:
        step: int64 (1,), the position that comes next.
        shortest, longest: int64 (1,), limits of the position of an end.
        tokens: (B, K), the last symbols.
        totals: (B, K), log-probabilities.
        finished: (B,), sentences that are not searched any more, and those that only fill the shape.
        counts: int64 (B,), how many ended hypotheses there are.
        end_steps, end_parents, end_totals: (B, K), positions, parents and log-probabilities of these.
        symbols, parents, scores: (T, R), of each position: what was chosen, from which of the K, and its
            log-probability.
        places: int64 (T, R), the rows of each hypothesis in caches whose first two dimensions are one.
        attention: what each hypothesis attended to at each position, before it was continued, (T, R, S), mean
            over models and heads; None if nobody asks.
        caches: by layer, keys and values of translations (T, R, 2·C).
        context: what is kept of the source, such as a layer's keys and values, (B, S, width) each.
        source: int64 (B, S), its symbols, and some of them again.
        masks: by model, (B, S), true at padding of the source.
        visible: by model, float32 (B, 1), the number of other positions.
        prefix: int64 (T, B), the symbols that are prescribed, and padding.
        prescribed: int64 (1,), before which position there may be some.
    """

    def __init__(self, arena: Arena, sizes: Sizes, shape: Shape, device: torch.device):
        self.shape, self.sizes = shape, sizes
        sentences, source, positions, *_ = shape
        self.beam, self.rows = sizes.beam, sentences * sizes.beam
        beams, history = (sentences, sizes.beam), (positions, self.rows)
        view, integer = arena.view, torch.int64
        self.step, self.shortest, self.longest, self.prescribed = (
            view(name, integer, 1) for name in ("step", "shortest", "longest", "prescribed")
        )
        self.prefix = view("prefix", integer, positions if shape.prescribed else 0, sentences)
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
        attention = (positions, self.rows, source)
        self.attention = view("attention", sizes.scores, *attention) if sizes.attends else None
        models = range(sizes.models)
        self.caches = [view(f"cache {i}", sizes.dtype, *history, 2 * c) for i, c in enumerate(sizes.channels)]
        kept = enumerate(sizes.widths)
        self.context = [view(f"context {i}", sizes.dtype, sentences, source, width) for i, width in kept]
        self.source = view("source", integer, sentences, source)
        self.masks = [view(f"mask {i}", torch.bool, sentences, source) for i in models]
        self.visible = [view(f"visible {i}", torch.float32, sentences, 1) for i in models]
        # constants, which a captured graph reads
        self.own = torch.arange(self.rows, device=device)
        self.first_rows = torch.arange(0, self.rows, sizes.beam, device=device)[:, None]
        self.positions = torch.arange(positions, device=device)
        self.candidates = torch.arange(2 * sizes.beam, device=device)

    def changing(self) -> list[Tensor]:
        """What a step reads and overwrites."""
        return [self.step, self.places, *self._found()]

    def _found(self) -> list[Tensor]:
        ends = [self.counts, self.end_steps, self.end_parents, self.end_totals]
        return [self.tokens, self.totals, self.finished, *ends]

    def history(self) -> list[Tensor]:
        """What is known of each position: symbols, parents, scores, and the attention, if it is kept."""
        kept = [] if self.attention is None else [self.attention]
        return [self.symbols, self.parents, self.scores, *kept]

    def written(self, step: int) -> list[Tensor]:
        """What a step writes for those that follow."""
        return [each[step] for each in (*self.history(), *self.caches)]

    def begin(
        self,
        source: Tensor,
        paddings: list[Tensor],
        context: list[Tensor],
        first: int,
        limits: tuple[int, int],
    ) -> None:
        """One empty hypothesis for each sentence.

        Args:
            source: (B′, S′), its symbols; not more than there is room for.
            paddings: by model, (B′, S′), true at its padding.
            context: what is kept of it, (B′, S′, width) each.
            first: the symbol before the first position.
            limits: the least and the greatest position of an end.
        """
        count, length = source.shape
        for tensor, value in zip((self.step, self.shortest, self.longest), (0, *limits)):
            tensor.fill_(value)
        self.tokens.fill_(first)
        self.totals.fill_(-torch.inf)[:, 0] = 0  # the others begin from the same
        self.finished.fill_(True)[:count] = False
        self.counts.zero_()
        self.source[:count, :length] = source
        self.source[:count, length:] = source[:, -1:]  # no symbol that is not there
        for mask, visible, padding in zip(self.masks, self.visible, paddings):
            mask.fill_(True)[:count, :length] = padding
            visible.copy_((~mask).sum(1, keepdim=True))
        for own, given in zip(self.context, context):
            own.zero_()[:count, :length] = given
        self.clear(0)

    def prescribe(self, prefix: Tensor, most: int) -> None:
        """Let translations begin with symbols (B′, P), padded at the end, of which ``most`` count."""
        most = min(most, prefix.size(1))
        self.prescribed.fill_(most)
        self.prefix[:most, : len(prefix)] = prefix[:, :most].t()

    def clear(self, first: int) -> None:
        """Forget what was at positions from this one on: a weight of 0 does not hide what is not finite."""
        for cache in self.caches:
            cache[first:].zero_()
        self._keep_places(first, self.shape.positions)

    def _keep_places(self, first: int, last: int) -> None:
        """Let each hypothesis find its own rows at these positions."""
        self.places[first:last] = self.positions[first:last, None] * self.rows + self.own

    def moved_to(self, smaller: State, kept: Tensor, steps: int) -> None:
        """Leave only some sentences, in the same memory.

        Args:
            smaller: of another number of sentences, with the same arena.
            kept: int64 (B of ``smaller``,), the sentences.
            steps: how many positions there are.
        """
        rows = (self.first_rows[kept] + self.own[: self.beam]).flatten()
        places = self.places[:steps].index_select(1, rows).flatten()

        def by_sentence(state: State) -> list[Tensor]:
            return [*state._found(), state.source, *state.masks, *state.visible, *state.context]

        for old, new in zip(by_sentence(self), by_sentence(smaller)):
            new.copy_(old.index_select(0, kept))
        for old, new in zip(self.history(), smaller.history()):
            new[:steps] = old[:steps].index_select(1, rows)
        smaller.prefix.copy_(self.prefix.index_select(1, kept))
        for old, new in zip(self.caches, smaller.caches):
            new[:steps] = old.flatten(0, 1).index_select(0, places).view_as(new[:steps])
        smaller.clear(steps)
        smaller._keep_places(0, steps)
