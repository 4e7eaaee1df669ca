"""Training with word alignments: a loss that is finite where a link has no weight."""

import math

import torch
from fairseq.criterions import label_smoothed_cross_entropy_with_alignment as criterions
from torch import Tensor

from ..attention.dense import scores_and_values
from ..attention.inputs import AttentionInputs
from ..attention.normalizers.alpha_entmax import AlphaEntmax
from ..entmax import entmax_loss
from ..errors import UserError
from . import around

Criterion = criterions.LabelSmoothedCrossEntropyCriterionWithAlignment


@around(Criterion, "forward")
def forward(inner, self, model, sample, reduce=True):
    """Keep the scores of the last layer's context attention, whose weights fairseq aligns."""
    context = model.attentions()["decoder_context"] if hasattr(model, "attentions") else ()
    self.attended = None
    if not context:
        return inner(self, model, sample, reduce=reduce)
    normalizer = context[-1].normalizer
    if not isinstance(normalizer, AlphaEntmax):
        raise UserError(f"alignments cannot be trained with --attention-normalizer {normalizer.name}")

    def keep(module, inputs, output) -> None:
        self.attended = inputs[0]

    with normalizer.register_forward_hook(keep):
        return inner(self, model, sample, reduce=reduce)


@around(Criterion, "compute_alignment_loss")
def compute_alignment_loss(inner, self, sample, net_output):
    """Σ w ℓ over the links with weights w, where ℓ = −log mean exp(−L) and L is the α-entmax loss of a head.

    At α = 1 this is fairseq's loss, −log of the heads' mean weight. For sparse weights, fairseq's loss is ∞
    where no head has weight, and without a gradient there, since weights do not depend on scores outside of
    their support. The gradient of L is p − 1 at the link, also where p = 0 (Peters et al. 2019, equation 8).
    """
    if self.attended is None or not len(sample["alignments"]):
        return inner(self, sample, net_output)
    source, target = sample["alignments"].T  # target positions are those of the whole batch
    losses = link_losses(self.attended, target, source)
    links = math.log(len(losses)) - torch.logsumexp(-losses, 0)
    return (links * sample["align_weights"].float()).sum()


def link_losses(inputs: AttentionInputs, target: Tensor, source: Tensor) -> Tensor:
    """The α-entmax losses (H, N) of N links between positions (N,), by head; differentiable in the scores."""
    scores, _ = scores_and_values(inputs)
    scores = scores.transpose(0, 1).flatten(1, 2)[:, target]  # (H, N, S)
    alphas = torch.as_tensor(inputs.alpha, dtype=torch.float64).flatten().expand(len(scores)).tolist()
    return torch.stack([entmax_loss(z, source, alpha) for z, alpha in zip(scores, alphas)])
