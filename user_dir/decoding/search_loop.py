"""Beam search over the steps of a decoder, with the results of fairseq's ``SequenceGenerator``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .cpu_steps import Rules, best
from .passes import DecoderPass, Memory

# Logits computed at once: as many as stay in a processor's cache, but of enough hypotheses that reading the
# weights of a large vocabulary takes less time than multiplying.
LOGITS, HYPOTHESES = 1 << 19, 128


@dataclass(frozen=True)
class Settings:
    """What ``fairseq-generate`` was asked for.

    Attributes:
        beam: K, hypotheses per sentence.
        longest: positions of a translation without its end.
        shortest: no translation is shorter, without its end.
        begin: the symbol before the first position.
        end: the symbol that ends a translation.
        rules: which symbols may follow.
        normalised: scores are divided by the length, with the end, to the power of ``length_penalty``.
        length_penalty: see ``normalised``.
        sparse: α-entmax of logits (…, V), if that is the output instead of softmax.
    """

    beam: int
    longest: int
    shortest: int
    begin: int
    end: int
    rules: Rules
    normalised: bool
    length_penalty: float
    sparse: Callable[[Tensor], Tensor] | None = None


def beam_search(decoder: DecoderPass, memory: Memory, symbols: int, settings: Settings) -> list[list[dict]]:
    """The K best hypotheses found for each sentence, in fairseq's form, best first.

    There are fewer if the output is sparse and fewer have a probability; if none has, there is the most
    probable unfinished one, with the score −∞.

    Args:
        decoder: gives the features of each position.
        memory: the encoded sentences.
        symbols: V, the size of the vocabulary.
        settings: of the search.

    Raises:
        ValueError: no translation was found by softmax, because the model's scores are not finite.
    """
    beam, count = settings.beam, 2 * settings.beam  # twice, because half may be ends
    state = decoder.start(memory)
    sentences = len(memory.counts)
    found: list[list[dict]] = [[] for _ in range(sentences)]
    live = list(range(sentences))
    tokens = torch.full((sentences, 1), settings.begin)
    scores = memory.rows.new_zeros(sentences, 0)
    idle = torch.zeros(sentences, beam, dtype=torch.bool)  # places of hypotheses without any future
    for step in range(settings.longest + 1):
        features = decoder.step(state, tokens)
        totals = scores[:, -1] if step else scores.new_zeros(sentences)
        totals = totals.view(len(live), -1)
        values, chosen, parents = _candidates(features, decoder.output, totals, symbols, step, settings)
        each = tokens.size(0) // len(live)
        rows = parents + (torch.arange(len(live)) * each)[:, None]
        ends = chosen.eq(settings.end) & values.isfinite()
        ends[:, :beam] &= ~idle
        done = _finish(found, live, ends[:, :beam], rows, values, tokens, scores, step, settings)
        if settings.sparse is not None:
            done |= _exhaust(found, live, values[:, 0], tokens, scores, settings.end)
        if len(done) == len(live):
            break
        if done:
            kept = torch.tensor([i for i in range(len(live)) if i not in done])
            live = [live[i] for i in kept.tolist()]
            ends, rows, values, chosen, idle = (x[kept] for x in (ends, rows, values, chosen, idle))
        # the first K that go on; where there are fewer, ended ones are kept as idle
        ends[:, :beam] |= idle
        order = (ends * count + torch.arange(count)).topk(beam, dim=1, largest=False)
        idle = order.values >= count
        rows, values, chosen = (x.gather(1, order.indices).flatten() for x in (rows, values, chosen))
        state.reorder(rows)
        tokens = torch.cat([tokens[rows], chosen[:, None]], dim=1)
        scores = torch.cat([scores[rows], values[:, None]], dim=1)
    if not all(found):
        raise ValueError(
            f"sentence {found.index([]) + 1} of the batch has no translation: scores are NaN or infinite"
        )
    return [sorted(each, key=lambda hypothesis: -hypothesis["score"].item()) for each in found]


def _candidates(
    features: Tensor,
    output: Callable[[Tensor], Tensor],
    totals: Tensor,
    symbols: int,
    step: int,
    settings: Settings,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, symbols and parents (B, 2·K) of the best continuations; parents count within a sentence."""
    rules, sparse = settings.rules, settings.sparse
    if step < settings.shortest:
        rules = replace(rules, banned=torch.cat([rules.banned, torch.tensor([settings.end])]))
    only = settings.end if step == settings.longest else None
    batch, beams = totals.shape
    at_once = max(1, max(HYPOTHESES, LOGITS // symbols) // beams)
    parts = []
    for first in range(0, batch, at_once):
        some = totals[first : first + at_once].contiguous()
        logits = output(features[first * beams : first * beams + some.numel()])
        if sparse is not None:
            logits = sparse(logits if rules.temperature == 1 else logits / rules.temperature)
        parts.append(best(logits.view(*some.shape, symbols), some, 2 * settings.beam, rules, only))
    values, chosen, parents = (torch.cat(each) for each in zip(*parts))
    return values, chosen, parents


def _finish(
    found: list[list[dict]],
    live: list[int],
    ends: Tensor,
    rows: Tensor,
    values: Tensor,
    tokens: Tensor,
    scores: Tensor,
    step: int,
    settings: Settings,
) -> set[int]:
    """Add the hypotheses that end here to ``found``; returns the sentences, by place, that are finished."""
    sentence, place = ends.nonzero(as_tuple=True)
    if not len(sentence):
        return set()
    row, total = rows[sentence, place], values[sentence, place]
    whole = torch.cat([tokens[row, 1:], torch.full((len(row), 1), settings.end)], dim=1)
    sums = torch.cat([scores.new_zeros(len(row), 1), scores[row], total[:, None]], dim=1)
    positional = sums.diff(dim=1)
    if settings.normalised:
        total = total / (step + 1) ** settings.length_penalty
    done = set()
    for at, *parts in zip(sentence.tolist(), whole.unbind(), total.unbind(), positional.unbind()):
        hypotheses = found[live[at]]
        if len(hypotheses) < settings.beam:
            hypotheses.append(_hypothesis(*parts))
        if len(hypotheses) == settings.beam or step == settings.longest:
            done.add(at)
    return done


def _exhaust(
    found: list[list[dict]], live: list[int], best: Tensor, tokens: Tensor, scores: Tensor, end: int
) -> set[int]:
    """The sentences, by place, none of whose hypotheses has a continuation with a probability.

    Where none has ended either, the most probable is added to ``found``, with an end of probability 0.
    """
    done = set(best.eq(-torch.inf).nonzero().flatten().tolist())
    each = len(tokens) // len(live)
    for at in done:
        if found[live[at]]:
            continue
        rows = slice(at * each, (at + 1) * each)
        row = at * each + (int(scores[rows, -1].argmax()) if scores.size(1) else 0)
        whole = torch.cat([tokens[row, 1:], tokens.new_tensor([end])])
        sums = torch.cat([scores.new_zeros(1), scores[row], scores.new_tensor([-torch.inf])])
        found[live[at]].append(_hypothesis(whole, sums[-1], sums.diff()))
    return done


def _hypothesis(tokens: Tensor, score: Tensor, positional: Tensor) -> dict:
    nothing = torch.empty(0)
    return {
        "tokens": tokens,
        "score": score,
        "positional_scores": positional,
        "attention": nothing,
        "alignment": nothing,
    }
