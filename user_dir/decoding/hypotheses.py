"""Hypotheses of a search on a GPU in fairseq's form, on the host."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from .device_state import State

_NOTHING = torch.empty(0)


def hypotheses_of(
    state: State, places: list[int], steps: int, end: int, power: float, may_fail: bool
) -> dict[int, list[dict]]:
    """The ended hypotheses of the sentences at these places, best first; waits for the device.

    Args:
        state: after so many ``steps``.
        places: of sentences.
        steps: see ``state``.
        end: the symbol that ends a hypothesis.
        power: scores are divided by the length, with the end, to this power.
        may_fail: a probability of 0 is one; else it is that of a sentence whose scores are NaN.
    """
    found: dict[int, list[dict]] = {place: [] for place in places}
    if not places:
        return found
    at = torch.tensor(places)
    counts, end_steps, parents, totals = (
        each.cpu()[at] for each in (state.counts, state.end_steps, state.end_parents, state.end_totals)
    )
    exists = torch.arange(state.beam) < counts[:, None]
    if not may_fail:
        exists &= totals.isfinite()
    sentence, number = exists.nonzero(as_tuple=True)
    if not len(sentence):
        return found
    lengths, parents, totals = (each[sentence, number] for each in (end_steps, parents, totals))
    history = [each[:steps].view(steps, -1, state.beam, *each.shape[2:]).cpu() for each in state.history()]
    whole, sums, attended = _traced(history, at[sentence], lengths, parents, totals, end)
    scores = totals / (lengths + 1).double().pow(power).to(totals.dtype)
    positional = sums.diff(dim=1, prepend=sums.new_zeros(len(sums), 1))
    for place, length, tokens, score, each, weights in zip(
        at[sentence].tolist(),
        (lengths + 1).tolist(),
        whole.unbind(),
        scores.unbind(),
        positional.unbind(),
        itertools.repeat(None) if attended is None else attended.unbind(),
    ):
        found[place].append(
            {
                "tokens": tokens[:length],
                "score": score,
                "positional_scores": each[:length],
                "attention": _NOTHING if weights is None else weights[:length].t(),
                "alignment": _NOTHING,
            }
        )
    return {place: sorted(each, key=lambda one: -one["score"].item()) for place, each in found.items()}


def _traced(
    history: list[Tensor], sentences: Tensor, lengths: Tensor, parents: Tensor, totals: Tensor, end: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Symbols and summed log-probabilities (N, T) of hypotheses, and what they attend to (N, T, S), if it was
    kept; from their ends back to their beginnings.

    Args:
        history: :meth:`.State.history`, by position, sentence and hypothesis.
        sentences: (N,), the sentence of each.
        lengths: (N,), symbols before its end.
        parents: (N,), the hypothesis that it ended.
        totals: (N,), its log-probability.
        end: the symbol of the end.
    """
    symbols, before, scores, *attention = history
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
