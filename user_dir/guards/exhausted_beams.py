"""Beam search fails where a model gives a probability of exactly 0 to every continuation.

fairseq (0.12.2 and later) never ends a hypothesis with a score of −∞: if fewer hypotheses than the beam size
have a probability, or none may end at the maximum length, the search continues to that length and then stops
with an AssertionError. With this guard, the search for a sentence ends as soon as all its unfinished
hypotheses have the probability 0. It returns the finished ones, even if they are fewer than the beam size; if
there are none, the most probable unfinished one, with the score −∞. Sampling, which raises an error where no
token has a probability, ends such a hypothesis in the same way. ``--print-alignment`` takes any number of
hypotheses. Unnecessary once fairseq's search ends such sentences.
"""

import math
from typing import Optional

import torch
from fairseq.search import BeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor

from ..errors import UserError
from .installing import around

# The score of ending a hypothesis that has probability 0: below that of any real one, and finite.
IMPOSSIBLE = -1e6


def install() -> None:
    """End exhausted searches, in Python and in TorchScript."""
    BeamSearch.step_of_fairseq = BeamSearch.step
    BeamSearch.step = torch.jit.export(_step)
    Sampling.step_of_fairseq = Sampling.step
    Sampling.step = torch.jit.export(_sampling_step)


@around(SequenceGenerator, "generate")
def generate(search, self, *args, **kwargs):
    """Drop the hypotheses that only served to end a search."""
    return [_possible(hypotheses) for hypotheses in search(self, *args, **kwargs)]


@around(SequenceGeneratorWithAlignment, "generate")
@torch.no_grad()
def align(search, self, models, sample, **kwargs):
    """Align the hypotheses that there are; fairseq expects as many as the beam has."""
    if any(getattr(model, "full_context_alignment", False) for model in self.model.models):
        return search(self, models, sample, **kwargs)
    found = SequenceGenerator.generate(self, models, sample, **kwargs)
    for source, hypotheses in zip(sample["net_input"]["src_tokens"].cpu(), found):
        for each in hypotheses:
            attention, target = each["attention"].cpu(), each["tokens"].cpu()
            if not attention.numel():
                raise UserError("--print-alignment needs a context attention in the decoder's last layer")
            each["alignment"] = self.extract_alignment(attention.t(), source, target, self.pad, self.eos)
    return found


def _step(
    self,
    step: int,
    lprobs: Tensor,
    scores: Optional[Tensor],
    prev_output_tokens: Optional[Tensor] = None,
    original_batch_idxs: Optional[Tensor] = None,
    candidate_multiple: int = 2,
):
    """As fairseq's, except that if no candidate of a sentence has a probability, all its hypotheses end."""
    found, tokens, beams = self.step_of_fairseq(
        step, lprobs, scores, prev_output_tokens, original_batch_idxs, candidate_multiple
    )
    exhausted = found[:, 0] == -float("inf")  # candidates are sorted
    if bool(exhausted.any()):
        bsz, beam_size, _ = lprobs.size()
        before = torch.zeros([bsz, beam_size], dtype=lprobs.dtype, device=lprobs.device)
        if scores is not None and step > 0:
            before = scores[:, :, step - 1].to(lprobs.dtype).clamp(min=-1e6)
        order = before.argsort(dim=1, descending=True)
        width = min(beam_size, found.size(1))
        ended = torch.full_like(found, -float("inf"))
        ended[:, :width] = (before.gather(1, order) - 1e6)[:, :width]
        parents = torch.zeros_like(beams)
        parents[:, :width] = order[:, :width]
        rows = exhausted.unsqueeze(1)
        found = torch.where(rows, ended, found)
        tokens = torch.where(rows, torch.full_like(tokens, self.eos), tokens)
        beams = torch.where(rows, parents, beams)
    return found, tokens, beams


def _sampling_step(
    self,
    step: int,
    lprobs: Tensor,
    scores: Tensor,
    prev_output_tokens: Optional[Tensor] = None,
    original_batch_idxs: Optional[Tensor] = None,
):
    """As fairseq's, except that a hypothesis none of whose continuations has a probability ends."""
    dead = (lprobs == -float("inf")).all(2)
    if not bool(dead.any()):
        return self.step_of_fairseq(step, lprobs, scores, prev_output_tokens, original_batch_idxs)
    lprobs = lprobs.clone()
    lprobs[:, :, self.eos] = torch.where(dead, torch.zeros_like(lprobs[:, :, 0]), lprobs[:, :, self.eos])
    found, tokens, beams = self.step_of_fairseq(step, lprobs, scores, prev_output_tokens, original_batch_idxs)
    return found - 1e6 * dead.to(found.dtype).gather(1, beams), tokens, beams


def _possible(hypotheses: list[dict]) -> list[dict]:
    """The hypotheses of a sentence that have a probability; if none has, the best with the score −∞."""
    # NaN where a hypothesis was continued at −∞
    sums = [float(each["positional_scores"].sum()) for each in hypotheses]
    possible = [each for each, total in zip(hypotheses, sums) if total > IMPOSSIBLE / 2]
    if possible or not hypotheses:
        return possible
    best = dict(hypotheses[0])
    best["score"] = torch.full_like(best["score"], -math.inf)
    best["positional_scores"] = best["positional_scores"].clone()
    best["positional_scores"][best["positional_scores"] < IMPOSSIBLE / 2] = -math.inf
    return [best]
