"""Beam search over the steps of a decoder, with the results of fairseq's ``SequenceGenerator``."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..guards.translation import repeating
from .cpu_steps import Rules, best
from .ensemble import Hypotheses
from .kernels import use_threads_of_torch
from .settings import Settings

# Logits computed at once: as many as stay in a processor's cache, but of enough hypotheses that reading the
# weights of a large vocabulary takes less time than multiplying.
LOGITS, HYPOTHESES = 1 << 19, 128


def beam_search(hypotheses: Hypotheses, settings: Settings, prefix: Tensor | None = None) -> list[list[dict]]:
    """The K best translations found for each sentence, in fairseq's form, best first.

    There are fewer if the output is sparse and fewer have a probability, or what is prescribed or forbidden
    leaves fewer; if none is left, there is the most probable unfinished one, with the score −∞.

    Args:
        hypotheses: an empty one for each of B sentences.
        settings: of the search.
        prefix: with what translations begin, int64 (B, P), padded at the end; None if that is free.

    Raises:
        ValueError: no translation was found, because the model's scores are not finite.
    """
    use_threads_of_torch()
    search = _Search(hypotheses, settings, prefix)
    for step in range(settings.longest + 1):
        if not search.step(step):
            break
    if not all(search.found):
        number = search.found.index([]) + 1
        raise ValueError(f"sentence {number} of the batch has no translation: scores are NaN or infinite")
    return [sorted(each, key=lambda hypothesis: -hypothesis["score"].item()) for each in search.found]


class _Search:
    """A search half-way: of the sentences that are not finished, K hypotheses each, after the first step."""

    def __init__(self, hypotheses: Hypotheses, settings: Settings, prefix: Tensor | None):
        self.hypotheses, self.settings = hypotheses, settings
        sentences = len(hypotheses)
        self.found: list[list[dict]] = [[] for _ in range(sentences)]
        self.live = list(range(sentences))
        self.prefix = None if prefix is None else prefix.long()
        self.tokens = torch.full((sentences, 1), settings.begin)
        self.scores = hypotheses.no_scores(sentences, 0)  # sums up to each position
        self.idle = torch.zeros(sentences, settings.beam, dtype=torch.bool)  # have no future
        self.never = torch.tensor([settings.padding, *settings.suppressed])
        self.not_yet = torch.cat([self.never, torch.tensor([settings.end])])
        self.may_fail = hypotheses.may_be_impossible or prefix is not None or settings.ngram > 0

    def step(self, step: int) -> bool:
        """Find the next symbols; false if all sentences are finished."""
        beam, count = self.settings.beam, 2 * self.settings.beam  # twice, because half may be ends
        self.hypotheses.step(self.tokens)
        values, chosen, parents = self.candidates(step)
        rows = parents + (torch.arange(len(self.live)) * (len(self.tokens) // len(self.live)))[:, None]
        ends = chosen.eq(self.settings.end) & values.isfinite()
        ends[:, :beam] &= ~self.idle
        done = self.finish(ends[:, :beam], rows, values, step)
        if self.may_fail:
            done |= self.give_up(values[:, 0])
        if len(done) == len(self.live):
            return False
        if done:
            kept = torch.tensor([i for i in range(len(self.live)) if i not in done])
            self.live = [self.live[i] for i in kept.tolist()]
            ends, rows, values, chosen, self.idle = (x[kept] for x in (ends, rows, values, chosen, self.idle))
            self.prefix = None if self.prefix is None else self.prefix[kept]
        # the first K that go on; where there are fewer, ended ones are kept as idle
        ends[:, :beam] |= self.idle
        order = (ends * count + torch.arange(count)).topk(beam, dim=1, largest=False)
        self.idle = order.values >= count
        rows, values, chosen = (x.gather(1, order.indices).flatten() for x in (rows, values, chosen))
        self.hypotheses.reorder(rows)
        self.tokens = torch.cat([self.tokens[rows], chosen[:, None]], dim=1)
        self.scores = torch.cat([self.scores[rows], values[:, None]], dim=1)
        return True

    def candidates(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, symbols and parents (B, 2·K) of the best continuations; parents count within a sentence."""
        settings, batch = self.settings, len(self.live)
        beams = len(self.tokens) // batch
        totals = (self.scores[:, -1] if step else self.hypotheses.no_scores(batch)).view(batch, beams)
        rules = self.rules(step, beams)
        at_once = max(1, max(HYPOTHESES, LOGITS // settings.symbols) // beams)
        parts = []
        for first in range(0, batch, at_once):
            some = totals[first : first + at_once].contiguous()
            of = slice(first * beams, first * beams + some.numel())
            scores = self.hypotheses.scores(of).view(*some.shape, settings.symbols)
            parts.append(best(scores, some, 2 * settings.beam, rules.of(of)))
        values, chosen, parents = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts))
        if step and self.is_prescribed(step):
            # where the end is prescribed, fairseq ends the first hypothesis as often as there are others
            ended = self.prefix[:, step].eq(settings.end)
            values[ended, :beams], chosen[ended, :beams] = values[ended, :1], settings.end
            parents[ended, :beams] = 0
        return values, chosen, parents

    def is_prescribed(self, step: int) -> bool:
        """Whether symbols may be prescribed at a position."""
        return self.prefix is not None and step < min(self.prefix.size(1), self.settings.longest)

    def rules(self, step: int, beams: int) -> Rules:
        """Which symbols may follow."""
        settings, banned, only = self.settings, self.never, None
        if self.is_prescribed(step):  # as in fairseq, all else is then allowed, in all sentences of the batch
            first = self.prefix[:, step]
            banned = self.never[:1]
            only = first.masked_fill(first.eq(settings.padding), -1).repeat_interleave(beams)
        elif step == settings.longest:
            only = torch.full((len(self.tokens),), settings.end)
        elif step < settings.shortest:
            banned = self.not_yet
        rules = Rules(banned, settings.unknown, settings.penalty, self.hypotheses.is_sparse, only)
        if not settings.ngram:
            return rules
        of, repeated = repeating(self.tokens[:, 1:], settings.ngram)
        starts = torch.searchsorted(of, torch.arange(len(self.tokens) + 1))
        return replace(rules, repeated=repeated, starts=starts)

    def finish(self, ends: Tensor, rows: Tensor, values: Tensor, step: int) -> set[int]:
        """Add the hypotheses that end here to ``found``; the sentences, by place, that are finished."""
        sentence, place = ends.nonzero(as_tuple=True)
        if not len(sentence):
            return set()
        settings = self.settings
        row, total = rows[sentence, place], values[sentence, place]
        whole = torch.cat([self.tokens[row, 1:], torch.full((len(row), 1), settings.end)], dim=1)
        sums = torch.cat([self.scores.new_zeros(len(row), 1), self.scores[row], total[:, None]], dim=1)
        positional = sums.diff(dim=1)
        if settings.normalised:
            total = total / (step + 1) ** settings.length_penalty
        done = set()
        for at, one, *parts in zip(
            sentence.tolist(), row.tolist(), whole.unbind(), total.unbind(), positional.unbind()
        ):
            found = self.found[self.live[at]]
            if len(found) < settings.beam:
                found.append(self.hypothesis(one, *parts))
            if len(found) == settings.beam or step == settings.longest:
                done.add(at)
        return done

    def give_up(self, best: Tensor) -> set[int]:
        """The sentences, by place, none of whose hypotheses has a continuation with a probability.

        Where none has ended either, the most probable is added to ``found``, with an end of probability 0.
        """
        done = set(best.eq(-torch.inf).nonzero().flatten().tolist())
        each, scores = len(self.tokens) // len(self.live), self.scores
        for at in done:
            if self.found[self.live[at]]:
                continue
            rows = slice(at * each, (at + 1) * each)
            row = at * each + (int(scores[rows, -1].argmax()) if scores.size(1) else 0)
            whole = torch.cat([self.tokens[row, 1:], self.tokens.new_tensor([self.settings.end])])
            sums = torch.cat([scores.new_zeros(1), scores[row], scores.new_tensor([-torch.inf])])
            self.found[self.live[at]].append(self.hypothesis(row, whole, sums[-1], sums.diff()))
        return done

    def hypothesis(self, row: int, tokens: Tensor, score: Tensor, positional: Tensor) -> dict:
        """A finished one, in fairseq's form."""
        return {
            "tokens": tokens,
            "score": score,
            "positional_scores": positional,
            "attention": self.hypotheses.attended(row),
            "alignment": torch.empty(0),
        }
