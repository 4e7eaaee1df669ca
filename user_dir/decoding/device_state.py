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
    layers: int  # of the decoder
    channels: int  # C, of its layers
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
            over heads; None if nobody asks.
        caches: by layer, keys and values of translations (T, R, 2·C).
        context: by layer, keys and values of the source (B, S, 2·C).
        source: int64 (B, S), its symbols, and some of them again.
        mask: (B, S), true at padding of the source.
        visible: float32 (B, 1), the number of other positions.
        prefix: int64 (T, B), the symbols that are prescribed, and padding.
        prescribed: int64 (1,), before which position there may be some.
    """

    def __init__(self, arena: Arena, sizes: Sizes, shape: Shape, device: torch.device):
        self.shape, self.sizes = shape, sizes
        sentences, source, positions, *_ = shape
        self.beam, self.rows = sizes.beam, sentences * sizes.beam
        beams, history = (sentences, sizes.beam), (positions, self.rows)
        view, integer, both = arena.view, torch.int64, 2 * sizes.channels
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
        layers = range(sizes.layers)
        self.caches = [view(f"cache {i}", sizes.dtype, *history, both) for i in layers]
        self.context = [view(f"context {i}", sizes.dtype, sentences, source, both) for i in layers]
        self.source = view("source", integer, sentences, source)
        self.mask = view("mask", torch.bool, sentences, source)
        self.visible = view("visible", torch.float32, sentences, 1)
        # constants, which a captured graph reads
        self.own = torch.arange(self.rows, device=device)
        self.first_rows = torch.arange(0, self.rows, sizes.beam, device=device)[:, None]
        self.positions = torch.arange(positions, device=device)
        self.candidates = torch.arange(2 * sizes.beam, device=device)

    def _by_sentence(self) -> list[Tensor]:
        ends = [self.counts, self.end_steps, self.end_parents, self.end_totals]
        source = [self.source, self.mask, self.visible, *self.context]
        return [self.tokens, self.totals, self.finished, *ends, *source]

    def _by_position(self) -> list[Tensor]:
        kept = [] if self.attention is None else [self.attention]
        return [self.symbols, self.parents, self.scores, *kept]

    def begin(
        self, source: Tensor, padding: Tensor, context: list[Tensor], first: int, limits: tuple[int, int]
    ) -> None:
        """One empty hypothesis for each sentence.

        Args:
            source: (B′, S′), its symbols; not more than there is room for.
            padding: (B′, S′), true at its padding.
            context: by layer, its keys and values (B′, S′, 2·C).
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
        self.mask.fill_(True)[:count, :length] = padding
        self.visible.copy_((~self.mask).sum(1, keepdim=True))
        for place, layer in zip(self.context, context):
            place.zero_()[:count, :length] = layer
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
        for old, new in zip(self._by_sentence(), smaller._by_sentence()):
            new.copy_(old.index_select(0, kept))
        for old, new in zip(self._by_position(), smaller._by_position()):
            new[:steps] = old[:steps].index_select(1, rows)
        smaller.prefix.copy_(self.prefix.index_select(1, kept))
        for old, new in zip(self.caches, smaller.caches):
            new[:steps] = old.flatten(0, 1).index_select(0, places).view_as(new[:steps])
        smaller.clear(steps)
        smaller._keep_places(0, steps)

    def hypotheses(
        self, places: list[int], steps: int, end: int, power: float, may_fail: bool
    ) -> dict[int, list[dict[str, Tensor]]]:
        """The ended hypotheses of the sentences at these places, on the host, best first.

        Args:
            places: of sentences.
            steps: how many positions there are.
            end: the symbol that ends a hypothesis.
            power: scores are divided by the length, with the end, to this power.
            may_fail: a probability of 0 is one; otherwise it is that of a sentence whose scores are NaN.
        """
        by_place: dict[int, list[dict[str, Tensor]]] = {place: [] for place in places}
        if not places:
            return by_place
        at = torch.tensor(places)
        counts, end_steps, end_parents, end_totals = (
            ends.cpu()[at] for ends in (self.counts, self.end_steps, self.end_parents, self.end_totals)
        )
        exists = torch.arange(self.beam) < counts[:, None]
        if not may_fail:
            exists &= end_totals.isfinite()
        sentence, number = exists.nonzero(as_tuple=True)
        if not len(sentence):
            return by_place
        lengths, parents, totals = (ends[sentence, number] for ends in (end_steps, end_parents, end_totals))
        symbols, sums, attended = self._traced(steps, at[sentence], lengths, parents, totals, end)
        scores = totals / (lengths + 1).double().pow(power).to(totals.dtype)
        positional = sums.diff(dim=1, prepend=sums.new_zeros(len(sums), 1))
        for i, (place, length) in enumerate(zip(at[sentence].tolist(), (lengths + 1).tolist())):
            by_place[place].append(
                {
                    "tokens": symbols[i, :length],
                    "score": scores[i],
                    "positional_scores": positional[i, :length],
                    "attention": torch.empty(0) if attended is None else attended[i, :length].t(),
                    "alignment": torch.empty(0),
                }
            )
        for hypotheses in by_place.values():
            hypotheses.sort(key=lambda hypothesis: -hypothesis["score"].item())
        return by_place

    def _traced(
        self, steps: int, sentences: Tensor, lengths: Tensor, parents: Tensor, totals: Tensor, end: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Symbols and summed log-probabilities (N, T) of hypotheses, and what they attend to (N, T, S), if it
        is kept; from their ends back to their beginnings.

        Args:
            steps: how many positions there are.
            sentences: (N,), the sentence of each.
            lengths: (N,), symbols before its end.
            parents: (N,), the hypothesis that it ended.
            totals: (N,), its log-probability.
            end: the symbol of the end.
        """
        symbols, before, scores, *attention = (
            rows[:steps].view(steps, -1, self.beam, *rows.shape[2:]).cpu() for rows in self._by_position()
        )
        width = int(lengths.max()) + 1
        whole = torch.full((len(lengths), width), end)
        sums = totals[:, None].repeat(1, width)
        attended = None
        if attention:
            attended = attention[0].new_zeros(len(lengths), width, attention[0].size(3))
            attended[torch.arange(len(lengths)), lengths] = attention[0][lengths, sentences, parents]
        for step in range(width - 2, -1, -1):
            rows = (step < lengths).nonzero().flatten()
            at = step, sentences[rows], parents[rows]
            whole[rows, step], sums[rows, step] = symbols[at], scores[at]
            parents[rows] = before[at]
            if attended is not None:  # by what was continued
                attended[rows, step] = attention[0][step, sentences[rows], parents[rows]]
        return whole, sums, attended
