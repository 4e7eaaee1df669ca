"""fairseq's loss with label smoothing keeps float32 copies of the scores of a whole batch.

In all versions. A copy of 2,048 tokens × 16,000 pieces takes 125 MiB; three are held at a time, more than all
the rest of a small model's update, and memory is read from end to end for each. With this guard, the loss of
this package's models on a CPU is computed from the scores, a few rows at a time, and once more for the
gradient: the same values up to rounding. Unnecessary once fairseq computes its loss in parts.
"""

from collections.abc import Iterator

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..modules import SparseOutput
from .installing import around

PART = 1 << 18  # scores at a time: in float32 they fit into a processor's cache


@around(LabelSmoothedCrossEntropyCriterion, "compute_loss")
def compute_loss(compute, self, model, net_output, sample, reduce=True):
    """Compute the loss in parts where it is known to be the sum over rows of scores."""
    scores = net_output[0]
    if not reduce or self.ignore_prefix_size or scores.device.type != "cpu" or not _is_softmax(model):
        return compute(self, model, net_output, sample, reduce=reduce)
    target = model.get_targets(sample, net_output)
    return SmoothedLoss.apply(scores.flatten(0, -2), target.reshape(-1, 1), self.eps, self.padding_idx)


def _is_softmax(model) -> bool:
    """Whether probabilities are the softmax of the scores, and nothing else, in a model of this package."""
    decoder = getattr(model, "decoder", None)
    own = getattr(type(decoder), "get_normalized_probs", None) is SparseOutput.get_normalized_probs
    return own and decoder.adaptive_softmax is None and decoder.output_normalizer.alpha() == 1


class SmoothedLoss(torch.autograd.Function):
    """fairseq's ``label_smoothed_nll_loss`` of the log-softmax of scores, summed.

    For a target y of a vocabulary of V, with ε′ = ε/(V − 1), the loss is −(1 − ε − ε′) log p_y − ε′ Σ log p,
    and its gradient p − ε′ − (1 − ε − ε′) e_y.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, target: Tensor, epsilon: float, ignored: int) -> tuple[Tensor, Tensor]:
        """Loss and negative log-likelihood, both scalars, of scores (N, V) and targets (N, 1)."""
        ctx.other = epsilon / (scores.size(-1) - 1)
        ctx.own, ctx.ignored = 1 - epsilon - ctx.other, ignored
        ctx.save_for_backward(scores, target)
        found = []
        for rows, own in _parts(scores, target):
            log_p = torch.log_softmax(rows, -1, dtype=_working(scores))
            found.append(torch.cat([log_p.gather(1, own), log_p.sum(-1, keepdim=True)], 1))
        nll, smooth = -torch.cat(found).masked_fill_(target == ignored, 0).sum(0)
        ctx.mark_non_differentiable(nll)
        return ctx.own * nll + ctx.other * smooth, nll

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, _) -> tuple:
        """The gradient of the scores."""
        scores, target = ctx.saved_tensors
        result = torch.empty_like(scores)
        weights = torch.where(target == ctx.ignored, 0, grad)
        for rows, own, weight, part in _parts(scores, target, weights, result):
            p = torch.softmax(rows, -1, dtype=_working(scores)).sub_(ctx.other)
            p.scatter_add_(1, own, p.new_full(own.shape, -ctx.own))
            part.copy_(p.mul_(weight))
        return result, None, None, None


def _parts(scores: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    size = max(1, PART // scores.size(-1))
    return zip(*(each.split(size) for each in (scores, *others)), strict=True)


def _working(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)
