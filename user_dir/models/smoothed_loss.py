"""The loss with label smoothing, computed a few rows at a time."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

PART = 1 << 18  # scores at a time: in float32 they fit into a processor's cache


class SmoothedLoss(torch.autograd.Function):
    """fairseq's ``label_smoothed_nll_loss`` of the log-softmax of scores, summed, a few rows at a time.

    For a target y of a vocabulary of V, with ε′ = ε/(V − 1), the loss is −(1 − ε − ε′) log p_y − ε′ Σ log p,
    and its gradient p − ε′ − (1 − ε − ε′) e_y.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, target: Tensor, epsilon: float, ignored: int) -> tuple[Tensor, Tensor]:
        """Loss and negative log-likelihood, both scalars, of scores (N, V) and targets (N, 1)."""
        other = epsilon / (scores.size(-1) - 1)
        own = 1 - epsilon - other
        size = max(1, PART // scores.size(-1))
        dtype = torch.promote_types(scores.dtype, torch.float32)
        all_sums, gradient = [], torch.empty_like(scores)
        for rows, right, part in zip(scores.split(size), target.split(size), gradient.split(size)):
            log_p = torch.log_softmax(rows, -1, dtype=dtype, out=part if part.dtype == dtype else None)
            left_out = right == ignored
            sums = torch.cat([log_p.gather(1, right), log_p.sum(-1, keepdim=True)], 1)
            all_sums.append(sums.masked_fill_(left_out, 0))
            if ctx.needs_input_grad[0]:
                p = log_p.exp_().sub_(other).scatter_add_(1, right, log_p.new_full(right.shape, -own))
                part.copy_(p.masked_fill_(left_out, 0))
        nll, smooth = -torch.cat(all_sums).sum(0)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll)
        return own * nll + other * smooth, nll

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, _) -> tuple:
        """The gradient of the scores."""
        gradient = ctx.saved_tensors[0]
        return gradient if grad == 1 else gradient * grad, None, None, None
