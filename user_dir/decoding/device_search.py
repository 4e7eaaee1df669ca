"""Beam search on a GPU, with the results of fairseq's ``SequenceGenerator``.

A step computes the next position of all hypotheses on tensors of fixed shapes (:mod:`.device_state`) without
the host, so that it can be replayed as a CUDA graph: one launch instead of some three hundred. The host only
counts positions, checks every few steps which sentences are finished, and reads all translations at the end.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ..errors import one_line
from ..graphs.recorder import Recorder
from .device_decoder import DeviceDecoder
from .device_state import LEAST_POSITIONS, LEAST_SENTENCES, LEAST_SOURCE, Arena, Shape, Sizes, State, bucket

EVERY = 4  # steps from one check for finished sentences to the next
SMALLER = 4  # a batch shrinks only to at most 1/SMALLER of its places, because a new shape costs two steps
MOST_GRAPHS = 64


class NotRecorded(Exception):
    """Recording a step failed, which leaves the state of the search undefined."""


class DeviceSearch:
    """Searches with one model; keeps memory and recorded steps for the batches that follow.

    Args:
        generator: fairseq's, with its model in evaluation mode. Beam, temperature and end must not change.
            All parameters have one device and dtype; their values may change, but not their addresses.
    """

    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(self, generator: SequenceGenerator):
        self._generator = weakref.proxy(generator)  # it owns this search: no reference cycle
        (self._model,) = generator.model.models
        self._temperature, self._end = generator.temperature, generator.eos
        decoder = self._model.decoder
        weight = decoder.output_projection.weight
        self._device = weight.device
        self._arena = Arena(self._device)
        self._decoder = DeviceDecoder(decoder, generator.max_len)
        scores = torch.float64 if weight.dtype == torch.float64 else torch.float32
        self._sizes = Sizes(generator.beam_size, len(decoder.layers), decoder.embed_dim, weight.dtype, scores)
        self._recorder = Recorder(self._device)
        self._states: dict[Shape, State] = {}
        self._replays: dict[Shape, Callable[[], None]] = {}
        symbols = torch.arange(generator.vocab_size, device=self._device)
        self._is_end, self._rules = symbols == self._end, torch.zeros_like(symbols, dtype=scores)

    @torch.inference_mode(False)
    @torch.no_grad()
    def __call__(self, net_input: dict, longest: int, begin: int) -> list[list[dict]]:
        """The K best hypotheses found for each sentence, in fairseq's form, best first, on the host.

        A sparse output may leave fewer; if it leaves none, the result is the most probable unfinished one,
        with the score −∞.

        Args:
            net_input: of a batch of fairseq's.
            longest: most positions of a translation, not counting its end.
            begin: the symbol before the first position.

        Raises:
            ValueError: no translation was found, because the model's scores are not finite.
            NotRecorded: a step could not be recorded.
        """
        state, translations = self._begin(net_input, longest, begin), {}
        for step in range(longest + 1):
            if step == state.shape.positions:
                state = self._state(state.shape._replace(positions=2 * step), state.sentences)
                state.clear(step)
            self._run(state, is_last=step == longest or step + 1 == state.shape.positions)
            if step % EVERY == EVERY - 1:
                finished = state.finished.tolist()
                if all(finished):
                    break
                going = [place for place in range(len(state.sentences)) if not finished[place]]
                if bucket(len(going), LEAST_SENTENCES) * SMALLER <= state.shape.sentences:
                    translations |= self._made(state, step + 1)  # unfinished sentences are replaced later
                    state = self._moved(state, going, step + 1)
        translations |= self._made(state, step + 1)
        for number in range(len(translations)):
            if not translations[number]:
                raise ValueError(
                    f"sentence {number + 1} of the batch has no translation: scores are NaN or infinite"
                )
        return [translations[number] for number in range(len(translations))]

    # ---------------------------------------------------------------------------------- between steps

    def _begin(self, net_input: dict, longest: int, begin: int) -> State:
        """The state before the first step."""
        generator, source = self._generator, net_input["src_tokens"]
        encoded = self._model.encoder.forward_torchscript(net_input)
        self._decoder.copies.refresh()
        room = bucket(len(source), LEAST_SENTENCES), bucket(source.size(1), LEAST_SOURCE), LEAST_POSITIONS
        state = self._state(Shape(*room), list(range(len(source))))
        context = self._decoder.context(encoded["encoder_out"][0])
        state.begin(encoded["encoder_padding_mask"][0], context, begin, (generator.min_len, longest))
        self._rules.zero_()[generator.unk] = -generator.unk_penalty
        self._rules[generator.pad] = -torch.inf
        if generator.token_indices_to_suppress is not None:
            self._rules[generator.token_indices_to_suppress.tolist()] = -torch.inf
        return state

    def _state(self, shape: Shape, sentences: list[int]) -> State:
        """The state of a shape, for the sentences with these numbers."""
        if shape not in self._states:
            moves = self._arena.moves
            state = State(self._arena, self._sizes, shape)
            if self._arena.moves != moves:  # other states and recorded steps use the old memory
                self._states.clear()
                self._replays.clear()
                self._recorder = Recorder(self._device)
            self._states[shape] = state
        self._states[shape].sentences = sentences
        return self._states[shape]

    def _run(self, state: State, is_last: bool) -> None:
        """Compute the next position: replay it, or, the first time for a shape, compute and then record it.

        Args:
            state: changed in place.
            is_last: the state has no position after this one.
        """
        replay = self._replays.get(state.shape)
        if replay is not None:
            replay()
            return
        self._recorder.run(lambda: self._step(state))
        if not is_last and len(self._replays) < MOST_GRAPHS:
            try:
                self._replays[state.shape] = self._recorder.record(lambda: self._step(state))
            except RuntimeError as error:
                raise NotRecorded(one_line(error)) from None

    def _moved(self, state: State, going: list[int], steps: int) -> State:
        """A smaller state with only the sentences at the places ``going``, after ``steps`` steps."""
        room = bucket(len(going), LEAST_SENTENCES)
        sentences = [state.sentences[place] for place in going]
        smaller = self._state(state.shape._replace(sentences=room), sentences)
        kept = torch.tensor(going + going[:1] * (room - len(going)), device=self._device)
        state.moved_to(smaller, kept, steps)
        smaller.finished[len(going) :] = True
        return smaller

    def _made(self, state: State, steps: int) -> dict[int, list[dict]]:
        """The hypotheses of a state after ``steps`` steps, by the numbers of their sentences."""
        generator = self._generator
        power = generator.len_penalty if generator.normalize_scores else 0.0
        may_fail = self._model.decoder.output_normalizer.alpha() != 1
        return dict(zip(state.sentences, state.hypotheses(steps, self._end, power, may_fail)))

    # ------------------------------------------------------------------------------------------- a step

    def _step(self, state: State) -> None:
        """Compute the next position: no value is read from the device, and no shape depends on one."""
        state.places.index_copy_(0, state.step, (state.step * state.rows + state.own)[None])
        values, symbols, parents = self._candidates(state)
        ends = symbols.eq(self._end) & values.ne(-torch.inf)
        self._finish(state, ends[:, : state.beam], values, parents)
        # The first K candidates that are no ends: each hypothesis ends once at most, so K of the 2·K remain.
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
        early, late = state.step < state.shortest, state.step >= state.longest
        banned = (self._is_end & early) | (~self._is_end & late)
        scores = self._scores(state) + self._rules.masked_fill(banned, -torch.inf)
        wanted = 2 * state.beam
        best, symbols = scores.topk(wanted)
        # as fairseq: nothing follows a NaN, which topk takes for the greatest
        best = best.masked_fill(best.isnan().any(1, keepdim=True), -torch.inf) + state.totals.view(-1, 1)
        values, order = best.view(len(state.totals), -1).topk(wanted)
        return values, symbols.reshape(len(values), -1).gather(1, order), order // wanted

    def _scores(self, state: State) -> Tensor:
        """Log-probabilities (R, V) of what may follow."""
        logits = self._decoder.step(state)
        if self._temperature != 1:
            logits = logits / self._temperature
        normalizer = self._model.decoder.output_normalizer
        if normalizer.alpha() == 1:
            return torch.log_softmax(logits, -1, dtype=self._sizes.scores)
        return normalizer(logits, log_probs=True)

    def _finish(self, state: State, ends: Tensor, values: Tensor, parents: Tensor) -> None:
        """Store those of the K best candidates that end (``ends``), K at most; mark finished sentences."""
        going = ~state.finished
        ends = ends & going[:, None]
        # goes[b, i, k]: candidate i of sentence b takes place k of the ended hypotheses
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
        # Where no hypothesis can continue and none has ended, the most probable one ends with probability 0.
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
