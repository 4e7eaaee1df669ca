"""Word alignments that are trained: a loss that is finite where a link has no weight."""

import math

import torch
from fairseq.criterions import label_smoothed_cross_entropy_with_alignment as criterions
from torch import Tensor

from ..attention.dense import attention_scores, widened
from ..attention.inputs import AttentionInputs
from ..attention.normalizers.alpha_entmax import AlphaEntmax
from ..errors import UserError, exit_on_user_error
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
        with exit_on_user_error():
            raise UserError(f"alignments cannot be trained with --attention-normalizer {normalizer.name}")

    def keep(module, inputs, output) -> None:
        self.attended = inputs[0], output[1]

    with normalizer.register_forward_hook(keep):
        return inner(self, model, sample, reduce=reduce)


@around(Criterion, "compute_alignment_loss")
def compute_alignment_loss(inner, self, sample, net_output):
    """Σ w ℓ of the links, of weights w, where ℓ = −log mean exp(−L) with the α-entmax loss L of each head.

    At α = 1 this is fairseq's loss, −log of the heads' mean weight. That is ∞ where no head has weight, and
    no loss of weights could give it any, since they do not depend on scores outside of their support. The
    gradient of L is p − 1 at the link, also where p = 0 (Peters et al. 2019, equation 8).
    """
    if self.attended is None or not len(sample["alignments"]):
        return inner(self, sample, net_output)
    source, target = sample["alignments"].T  # target positions are those of the whole batch
    losses = link_losses(*self.attended, target, source)
    links = math.log(len(losses)) - torch.logsumexp(-losses, 0)
    return (links * sample["align_weights"].float()).sum()


def link_losses(inputs: AttentionInputs, weights: Tensor, target: Tensor, source: Tensor) -> Tensor:
    """The α-entmax loss of links of positions (N,) for each head: (H, N), differentiable in the scores z.

    L = Σ p (z − z_link) + Σ (p − p^α) / (α (α − 1)), with the weights p, (B, H, T, S). α has no gradient.
    """
    query, key, _ = widened(inputs.query, inputs.key, inputs.value)
    scores = attention_scores(query, key, inputs.key_padding_mask, inputs.attn_mask, inputs.causal)
    z, p = (each.transpose(0, 1).flatten(1, 2)[:, target].float() for each in (scores, weights.detach()))
    alpha = torch.as_tensor(inputs.alpha, device=p.device).detach().float().view(-1, 1, 1)
    above = (alpha - 1).clamp(min=1e-6)  # near 1, the limit is Shannon's entropy
    entropy = -p * torch.expm1(above * p.log()) / (above * alpha)
    apart = z - z.gather(2, source.expand(len(p), -1)[..., None])
    return (p * apart.masked_fill(p == 0, 0.0) + entropy).sum(-1)
