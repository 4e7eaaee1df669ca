"""Beam search on a GPU, with the results of fairseq's ``SequenceGenerator``.

A step computes the next position of all hypotheses on tensors of fixed shapes (:mod:`.device_state`) without
the host, so that it can be replayed as a CUDA graph (:mod:`.device_graphs`). The host only counts positions,
looks every few steps which sentences are finished, and in the end reads the translations, all at once.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from .device_decoder import DeviceDecoder
from .device_graphs import Graphs, Restart
from .device_state import LEAST_POSITIONS, LEAST_SENTENCES, LEAST_SOURCE, Arena, Shape, Sizes, State, bucket

EVERY = 4  # steps after which the host looks which sentences are finished
SMALLER = 4  # a batch is moved together if it then needs this part of the room: a new shape costs two steps


class DeviceSearch:
    """Searches with one model; keeps memory and captured graphs for the batches that follow.

    Args:
        generator: fairseq's, with its model in evaluation mode and its options. Beam, temperature and end
            must not change; parameters, on one device and of one dtype, may, but must stay where they are.
    """

    @torch.inference_mode(False)
    def __init__(self, generator: SequenceGenerator):
        self._generator = weakref.proxy(generator)  # which keeps this, and its memory, alive
        (self._model,) = generator.model.models
        self._temperature, self._end = generator.temperature, generator.eos
        decoder = self._model.decoder
        weight = decoder.output_projection.weight
        self._device = weight.device
        self._arena = Arena(self._device)
        self._decoder = DeviceDecoder(decoder, self._arena)
        self._sizes = Sizes(
            generator.beam_size,
            len(decoder.layers),
            decoder.embed_dim,
            getattr(generator, "aligns", False) and self._decoder.attends,
            weight.dtype,
            torch.float64 if weight.dtype == torch.float64 else torch.float32,
        )
        self._graphs = Graphs(self._device)
        self._states: dict[Shape, State] = {}
        symbols = torch.arange(generator.vocab_size, device=self._device)
        self._is_end, self._suppressed = symbols == self._end, torch.zeros_like(symbols, dtype=torch.bool)
        self._rules = torch.zeros_like(symbols, dtype=self._sizes.scores)

    def __call__(
        self, net_input: dict, longest: int, begin: int, prefix: Tensor | None = None
    ) -> list[list[dict]]:
        """The K best hypotheses found for each sentence, in fairseq's form, best first, on the host.

        There are fewer if the output is sparse, or what is prescribed or forbidden leaves fewer; if none is
        left, there is the most probable unfinished one, with the score −∞.

        Args:
            net_input: of a batch of fairseq's.
            longest: positions of a translation without its end.
            begin: the symbol before the first position.
            prefix: with what translations begin, int64 (B, P), padded at the end; None if that is free.

        Raises:
            ValueError: no translation was found, because the model's scores are not finite.
        """
        with torch.inference_mode(False), torch.no_grad():
            while True:
                try:
                    by_number = self._search(net_input, longest, begin, prefix)
                    break
                except Restart:
                    continue
        sentences, width = net_input["src_tokens"].shape
        translations = [by_number[number] for number in range(sentences)]
        if [] in translations:
            number = translations.index([]) + 1
            raise ValueError(f"sentence {number} of the batch has no translation: scores are NaN or infinite")
        for hypothesis in itertools.chain(*translations):
            hypothesis["attention"] = hypothesis["attention"][:width]
        return translations

    def _search(
        self, net_input: dict, longest: int, begin: int, prefix: Tensor | None
    ) -> dict[int, list[dict]]:
        """Hypotheses by the numbers of their sentences."""
        translations: dict[int, list[dict]] = {}
        state = self._begin(net_input, longest, begin, prefix)
        sentences = list(range(len(net_input["src_tokens"])))
        for step in range(longest + 1):
            if step == state.shape.positions:
                state = self._state(state.shape._replace(positions=2 * step))
                state.clear(step)
            is_last = step == longest or step + 1 == state.shape.positions
            self._graphs.run(state, self._step, is_last)
            if step % EVERY == EVERY - 1 and step < longest:
                state, sentences = self._without_finished(state, sentences, step + 1, translations)
                if not sentences:
                    break
        self._collect(state, dict(enumerate(sentences)), step + 1, translations)
        return translations

    # ---------------------------------------------------------------------------------- between steps

    def _begin(self, net_input: dict, longest: int, begin: int, prefix: Tensor | None = None) -> State:
        """The state before the first step."""
        generator, source = self._generator, net_input["src_tokens"]
        encoded = self._model.encoder.forward_torchscript(net_input)
        with self._forgetting():
            self._decoder.refresh(longest + 1)
        positions = LEAST_POSITIONS
        while prefix is not None and positions < min(prefix.size(1), longest):
            positions *= 2
        ngram = getattr(generator.repeat_ngram_blocker, "no_repeat_ngram_size", 0)
        room = bucket(len(source), LEAST_SENTENCES), bucket(source.size(1), LEAST_SOURCE), positions
        state = self._state(Shape(*room, prefix is not None, ngram))
        context = self._decoder.context(encoded["encoder_out"][0])
        state.begin(source, encoded["encoder_padding_mask"][0], context, begin, (generator.min_len, longest))
        if prefix is not None:
            state.prefix.fill_(generator.pad)
            state.prescribe(prefix, longest)
        self._rules.zero_()[generator.unk] = -generator.unk_penalty
        self._rules[generator.pad] = -torch.inf
        self._suppressed.fill_(False)
        if generator.token_indices_to_suppress is not None:
            for symbol in generator.token_indices_to_suppress.tolist():
                self._suppressed[symbol] = True
        return state

    def _state(self, shape: Shape) -> State:
        if shape not in self._states:
            with self._forgetting():
                state = State(self._arena, self._sizes, shape, self._device)
            self._states[shape] = state
        return self._states[shape]

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forget states and graphs if memory moves."""
        moves = self._arena.moves
        yield
        if self._arena.moves != moves:
            self._states.clear()
            self._graphs.clear()

    def _without_finished(
        self, state: State, sentences: list[int], steps: int, translations: dict[int, list[dict]]
    ) -> tuple[State, list[int]]:
        """The state of the unfinished sentences, in less memory if that is worth while; waits for the device.

        Args:
            state: after so many ``steps``.
            sentences: their numbers.
            steps: see ``state``.
            translations: gets the hypotheses of sentences that are left out.
        """
        finished = state.finished.tolist()
        going = [place for place in range(len(sentences)) if not finished[place]]
        room = bucket(len(going), LEAST_SENTENCES)
        if going and room * SMALLER > state.shape.sentences:
            return state, sentences
        done = {place: number for place, number in enumerate(sentences) if finished[place]}
        self._collect(state, done, steps, translations)
        if not going:
            return state, []
        smaller = self._state(state.shape._replace(sentences=room))
        kept = torch.tensor(going + going[:1] * (room - len(going)), device=self._device)
        state.moved_to(smaller, kept, steps)
        smaller.finished[len(going) :] = True
        return smaller, [sentences[place] for place in going]

    def _collect(
        self, state: State, places: dict[int, int], steps: int, translations: dict[int, list[dict]]
    ) -> None:
        """Read the hypotheses of the sentences at these places into ``translations``, by their numbers."""
        generator, shape = self._generator, state.shape
        power = generator.len_penalty if generator.normalize_scores else 0.0
        may_fail = shape.prescribed or shape.ngram > 0 or self._model.decoder.output_normalizer.alpha() != 1
        made = state.hypotheses(list(places), steps, self._end, power, may_fail)
        translations.update({places[place]: hypotheses for place, hypotheses in made.items()})

    # ------------------------------------------------------------------------------------------- a step

    def _step(self, state: State) -> None:
        """Compute the next position: no value is read from the device, and no shape depends on one."""
        state.places.index_copy_(0, state.step, (state.step * state.rows + state.own)[None])
        values, symbols, parents = self._candidates(state)
        ends = symbols.eq(self._end) & values.ne(-torch.inf)
        self._finish(state, ends[:, : state.beam], values, parents)
        # The first K that go on. A hypothesis ends only once, so of 2·K at least K do.
        order = (ends * len(state.candidates) + state.candidates).topk(state.beam, dim=1, largest=False)[1]
        values, symbols, parents = (tensor.gather(1, order) for tensor in (values, symbols, parents))
        for history, chosen in zip((state.symbols, state.parents, state.scores), (symbols, parents, values)):
            history.index_copy_(0, state.step, chosen.view(1, -1))
        rows = (parents + state.first_rows).flatten()
        state.places.copy_(state.places.index_select(1, rows))
        state.tokens.copy_(symbols)
        state.totals.copy_(values)
        state.step.add_(1)

    def _candidates(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, symbols and parents (B, 2·K) of the best continuations; parents count within a sentence."""
        scores = self._scores(state)
        early, late = state.step < state.shortest, state.step >= state.longest
        banned = self._suppressed | (self._is_end & early)
        if state.shape.prescribed:  # as in fairseq, what is not prescribed is then free
            banned = banned & (state.step >= state.prescribed)
        scores += self._rules.masked_fill(banned | (~self._is_end & late), -torch.inf)
        if 0 < state.shape.ngram < state.shape.positions:
            scores.scatter_(1, repeated(state, self._generator.pad), -torch.inf)
        wanted = 2 * state.beam
        best, symbols = scores.topk(wanted)
        if state.shape.prescribed:
            only, prefix = self._prescribed(state)
            alone = torch.where(state.candidates == 0, scores.gather(1, prefix), -torch.inf)
            best, symbols = torch.where(only, alone, best), torch.where(only, prefix, symbols)
        # as fairseq: nothing follows a NaN, which topk takes for the greatest
        best = best.masked_fill(best.isnan().any(1, keepdim=True), -torch.inf) + state.totals.view(-1, 1)
        values, order = best.view(len(state.totals), -1).topk(wanted)
        symbols, parents = symbols.reshape(len(values), -1).gather(1, order), order // wanted
        if state.shape.prescribed:
            # where the end is prescribed, fairseq ends the first hypothesis as often as there are others
            ended = (only & prefix.eq(self._end))[:: state.beam] & (state.step > 0)
            ended = ended & (state.candidates < state.beam)
            values = torch.where(ended, values[:, :1], values)
            symbols, parents = symbols.masked_fill(ended, self._end), parents.masked_fill(ended, 0)
        return values, symbols, parents

    def _scores(self, state: State) -> Tensor:
        """Log-probabilities (R, V) of what may follow; the state gets what is attended to."""
        logits, attended = self._decoder.step(state)
        if state.attention is not None:
            state.attention.index_copy_(0, state.step, attended.to(self._sizes.scores)[None])
        if self._temperature != 1:
            logits = logits / self._temperature
        normalizer = self._model.decoder.output_normalizer
        if normalizer.alpha() == 1:
            return torch.log_softmax(logits, -1, dtype=self._sizes.scores)
        return normalizer(logits, log_probs=True)

    def _prescribed(self, state: State) -> tuple[Tensor, Tensor]:
        """Whether a symbol is prescribed for each hypothesis, and which (R, 1)."""
        prefix = state.prefix.index_select(0, state.step).t()  # (B, 1)
        only = prefix.ne(self._generator.pad) & (state.step < state.prescribed)
        return tuple(tensor.expand(-1, state.beam).reshape(-1, 1) for tensor in (only, prefix))

    def _finish(self, state: State, ends: Tensor, values: Tensor, parents: Tensor) -> None:
        """Note the hypotheses that end, (B, K) of the best, until there are K, and what ends with them."""
        going = ~state.finished
        ends = ends & going[:, None]
        # to which of the K places of ended hypotheses each goes: (B, K of them, K places)
        number = state.counts[:, None] + ends.cumsum(1) - 1
        goes = ends[:, :, None] & (number[:, :, None] == state.candidates[: state.beam])
        filled, which = goes.any(1), goes.to(torch.uint8).argmax(1)
        steps = state.step.expand_as(which)
        for kept, new in (
            (state.end_steps, steps),
            (state.end_parents, parents.gather(1, which)),
            (state.end_totals, values.gather(1, which)),
        ):
            kept.copy_(torch.where(filled, new, kept))
        state.counts.add_(ends.sum(1)).clamp_(max=state.beam)
        # Where no hypothesis has a continuation, and none has ended, the most probable one ends, impossibly.
        exhausted = going & values[:, 0].eq(-torch.inf)
        given_up = exhausted & state.counts.eq(0)
        for kept, new in (
            (state.end_steps, state.step),
            (state.end_parents, state.totals.argmax(1)),
            (state.end_totals, values[:, 0]),
        ):
            kept[:, 0].copy_(torch.where(given_up, new, kept[:, 0]))
        state.counts.add_(given_up)
        state.finished.logical_or_(exhausted | state.counts.eq(state.beam))


def repeated(state: State, padding: int) -> Tensor:
    """Symbols (R, N) that would repeat an n-gram of each hypothesis, and padding."""
    size, count = state.shape.ngram, state.shape.positions - state.shape.ngram
    # a hypothesis reads at each position what was chosen before it, in the row that it has there
    rows = (state.places[1:] - state.rows).flatten()
    words = state.symbols.flatten().index_select(0, rows).view(-1, state.rows)
    repeats = (state.positions[:count] <= state.step - size)[:, None]
    last = words.index_select(0, (state.step - size + 1 + state.positions[: size - 1]).clamp(min=0))
    for place in range(size - 1):
        repeats = repeats & (words[place : place + count] == last[place])
    return torch.where(repeats, words[size - 1 : size - 1 + count], padding).t()
