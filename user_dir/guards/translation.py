"""fairseq's search: beams that are exhausted, repeated n-grams, and blank lines.

Every fault repaired here is in all versions, unless stated otherwise.
"""

import math

import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import BeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor

from . import around

# ---------------------------------------------------------------------------------- exhausted beams
# A model with sparse outputs gives a probability of exactly 0 to most continuations. fairseq never ends a
# hypothesis with a score of −∞: if fewer hypotheses than the beam size are possible, or none may end at
# the maximum length, the search goes on to that length and stops with an AssertionError. Here, the search for
# a sentence ends as soon as all its unfinished hypotheses have the probability 0. It returns the finished
# ones, even if they are fewer than the beam; if there are none, the most probable unfinished one, with the
# score −∞. Sampling, which raises an error where no token has a probability, ends such a hypothesis likewise.

# The score of ending a hypothesis that has probability 0: below that of any real one, and finite.
IMPOSSIBLE = -1e6


@around(BeamSearch, "step")
def end_exhausted(take_step, self, step: int, lprobs: Tensor, scores: Tensor | None, *others, **options):
    """As fairseq's, but if all candidates of a sentence have the probability 0, all its hypotheses end."""
    totals, tokens, beams = take_step(self, step, lprobs, scores, *others, **options)
    exhausted = totals[:, 0] == -math.inf  # candidates are sorted
    if exhausted.any():
        before = torch.zeros_like(lprobs[:, :, 0])
        if scores is not None and step > 0:
            before = scores[:, :, step - 1].to(lprobs.dtype).clamp(min=IMPOSSIBLE)
        order = before.argsort(dim=1, descending=True)
        width = min(lprobs.size(1), totals.size(1))
        ended = torch.full_like(totals, -math.inf)
        ended[:, :width] = (before.gather(1, order) + IMPOSSIBLE)[:, :width]
        parents = torch.zeros_like(beams)
        parents[:, :width] = order[:, :width]
        rows = exhausted.unsqueeze(1)
        totals = torch.where(rows, ended, totals)
        tokens = tokens.masked_fill(rows, self.eos)
        beams = torch.where(rows, parents, beams)
    return totals, tokens, beams


@around(Sampling, "step")
def end_dead(take_step, self, step: int, lprobs: Tensor, *others):
    """As fairseq's, but a hypothesis ends if all its continuations have the probability 0."""
    dead = (lprobs == -math.inf).all(2)
    if dead.any():
        lprobs = lprobs.clone()
        lprobs[:, :, self.eos].masked_fill_(dead, 0.0)
    totals, tokens, beams = take_step(self, step, lprobs, *others)
    return totals + IMPOSSIBLE * dead.to(totals.dtype).gather(1, beams), tokens, beams


@around(SequenceGenerator, "generate")
def generate(search, self, *args, **kwargs):
    """Drop the hypotheses that only served to end a search."""
    return [_possible(hypotheses) for hypotheses in search(self, *args, **kwargs)]


def _possible(hypotheses: list[dict]) -> list[dict]:
    """The hypotheses of a sentence with a probability above 0; if there are none, the best with score −∞."""
    # NaN if a hypothesis was continued from −∞
    sums = [float(hypothesis["positional_scores"].sum()) for hypothesis in hypotheses]
    possible = [hypothesis for hypothesis, total in zip(hypotheses, sums) if total > IMPOSSIBLE / 2]
    if possible or not hypotheses:
        return possible
    best = dict(hypotheses[0])
    best["score"] = torch.full_like(best["score"], -math.inf)
    best["positional_scores"] = best["positional_scores"].clone()
    best["positional_scores"][best["positional_scores"] < IMPOSSIBLE / 2] = -math.inf
    return [best]


@around(SequenceGeneratorWithAlignment, "generate")
@torch.no_grad()
def align(search, self, models, sample, **kwargs):
    """Align the hypotheses that there are; fairseq expects as many as the beam has."""
    if any(getattr(model, "full_context_alignment", False) for model in self.model.models):
        return search(self, models, sample, **kwargs)
    translations = SequenceGenerator.generate(self, models, sample, **kwargs)
    for source, hypotheses in zip(sample["net_input"]["src_tokens"].cpu(), translations):
        for hypothesis in hypotheses:
            attended, target = hypothesis["attention"].cpu().t(), hypothesis["tokens"].cpu()
            hypothesis["alignment"] = self.extract_alignment(attended, source, target, self.pad, self.eos)
    return translations


# --------------------------------------------------------------------------------- repeated n-grams
# On a CPU, fairseq (0.12.2 and later) compares the padding at the end of its buffer instead of the end of the
# translation so far, so that --no-repeat-ngram-size has no effect. A size of 1 would forbid the end of the
# sentence, too, because the same symbol stands before the first; here it is no part of a translation.


@around(NGramRepeatBlock, "_no_repeat_ngram")
def forbid_repeated(_, self, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int):
    """See fairseq."""
    if step >= self.no_repeat_ngram_size:
        rows, symbols = repeating(tokens[:, 1 : step + 1], self.no_repeat_ngram_size)
        lprobs[rows, symbols] = -float("inf")
    return lprobs


def repeating(tokens: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Rows, in order, and symbols that would repeat an n-gram, after tokens (R, T) with T at least n."""
    seen = tokens.unfold(1, size, 1)  # (R, T − n + 1, n)
    last = tokens[:, tokens.size(1) - size + 1 :]
    rows, places = torch.where((seen[:, :, : size - 1] == last.unsqueeze(1)).all(2))
    return rows, seen[rows, places, size - 1]


# -------------------------------------------------------------------------------------- blank lines
# fairseq invents a translation of a line without any piece: an empty one, or one of white space alone.


@around(SequenceGenerator, "generate")
@around(SequenceGeneratorWithAlignment, "generate")
def leave_blank(search, self, models, sample, **kwargs):
    """Give a blank source an empty translation with the score 0, unless its beginning is prescribed."""
    translations = search(self, models, sample, **kwargs)
    source = sample["net_input"].get("src_tokens")
    prescribed = kwargs.get("prefix_tokens") is not None or kwargs.get("constraints") is not None
    if prescribed or source is None or source.dim() != 2 or not self.model.has_encoder():
        return translations
    for row in (source.eq(self.pad) | source.eq(self.eos)).all(1).nonzero().flatten().tolist():
        translations[row] = [_blank(hypothesis, self.eos) for hypothesis in translations[row][:1]]
    return translations


def _blank(hypothesis: dict, end: int) -> dict:
    """A hypothesis that is only its end, with the entries of a given one."""
    tokens, attention = hypothesis["tokens"], hypothesis.get("attention")
    empty = {
        "tokens": tokens.new_tensor([end]),
        "score": hypothesis["score"].new_zeros(()),
        "positional_scores": hypothesis["positional_scores"].new_zeros(1),
        "alignment": hypothesis["alignment"][:0],
    }
    if isinstance(attention, Tensor) and attention.dim() == 2:
        empty["attention"] = attention[:, :1]
    return {**hypothesis, **empty}
