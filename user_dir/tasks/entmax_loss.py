"""The α-entmax loss as a fairseq criterion, for models whose output layer is α-entmax."""

from dataclasses import dataclass, field

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from ..entmax import entmax, entmax_loss_and_support
from ..errors import UserError


@dataclass
class EntmaxLossConfig(FairseqDataclass):
    """The settings of the criterion; α is a setting of the model."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "share s of the target's weight that is spread over all tokens"}
    )
    rdrop_weight: float = field(
        default=0.0, metadata={"help": "weight of the divergence between two passes (R-Drop)"}
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("entmax_loss", dataclass=EntmaxLossConfig)
class EntmaxLossCriterion(FairseqCriterion):
    """The α-entmax loss (:func:`~user_dir.entmax.entmax_loss`) with the α of the model's ``--output-alpha``.

    The log line has the loss per token (in nats at α = 1; no perplexity, which is meaningless where p = 0),
    the mean size of the support in tokens (``support``) and the share of exact zeros (``output_zeros``).

    With ``rdrop_weight`` w, a batch is passed through the model twice in training, and the loss is
    (ℓ₁ + ℓ₂)/2 + w/2 D, where D is :func:`divergence`: the objective of R-Drop (Liang et al. 2021,
    https://arxiv.org/abs/2106.14448, equation 4), halved so that it has the size of ℓ.
    """

    def __init__(self, task, sentence_avg: bool, label_smoothing: float, rdrop_weight: float = 0.0):
        super().__init__(task)
        self.sentence_avg, self.label_smoothing = sentence_avg, label_smoothing
        self.rdrop_weight = rdrop_weight

    def forward(self, model, sample, reduce=True):
        """See fairseq: the loss, the sample size and what is logged."""
        alpha, inputs = output_alpha(model), sample["net_input"]
        twice = self.rdrop_weight > 0 and model.training
        if twice:
            inputs = {name: torch.cat([value] * 2) for name, value in inputs.items()}
        net_output = model(**inputs)
        logits, target = net_output[0], model.get_targets(sample, net_output)
        nsentences = target.size(0)
        if twice:
            target = torch.cat([target] * 2)
        losses, support = entmax_loss_and_support(
            logits, target, alpha, label_smoothing=self.label_smoothing, ignore_index=self.padding_idx
        )
        if twice:
            between = divergence(*logits.chunk(2), alpha).masked_fill(
                target[:nsentences] == self.padding_idx, 0
            )
            losses = losses.unflatten(0, (2, -1)).mean(0) + self.rdrop_weight / 2 * between
        loss = losses.sum() if reduce else losses.view(-1)
        sample_size = nsentences if self.sentence_avg else sample["ntokens"]
        logged = {
            "loss": loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": nsentences,
            "sample_size": sample_size,
            "support": support.sum().data,
            "targets": (target != self.padding_idx).sum().data,
            "symbols": logits.size(-1),
            "batches": 1,
        }
        return loss, sample_size, logged

    @staticmethod
    def reduce_metrics(logging_outputs) -> None:
        """Aggregate what the workers logged."""
        total = {name: sum(log.get(name, 0) for log in logging_outputs) for name in _LOGGED}
        if not total["targets"]:
            return
        size, tokens = total["sample_size"], total["targets"]
        metrics.log_scalar("loss", total["loss"] / size, size, round=4)
        support = total["support"] / tokens
        symbols = total["symbols"] / total["batches"]
        metrics.log_scalar("support", support, tokens, round=2)
        metrics.log_scalar("output_zeros", 1 - support / symbols, tokens, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True, because every logged value is a sum."""
        return True


def divergence(first: Tensor, second: Tensor, alpha: float) -> Tensor:
    """Half of the symmetric Fenchel–Young divergence between the α-entmax of logits (…, V): (…).

    D = ½ (L(z₁; p₂) + L(z₂; p₁)) = ½ ⟨z₁ − z₂, p₁ − p₂⟩ with the Fenchel–Young loss L of α-entmax (Blondel et
    al. 2020, https://arxiv.org/abs/1901.02324, definition 2). At α = 1 it is the mean of the Kullback–Leibler
    divergences KL(p₁‖p₂) and KL(p₂‖p₁). For α > 1, supports may differ: then D is finite, unlike these.
    """
    first, second = (z if z.dtype == torch.float64 else z.float() for z in (first, second))
    return ((first - second) * (entmax(first, alpha) - entmax(second, alpha))).sum(-1) / 2


_LOGGED = ("loss", "sample_size", "support", "targets", "symbols", "batches")


def output_alpha(model) -> float:
    """The α of a model's output layer; ends the run with a message if it is a softmax."""
    normalizer = getattr(getattr(model, "decoder", None), "output_normalizer", None)
    if normalizer is None or normalizer.is_softmax:
        raise UserError("--criterion entmax_loss needs a model of ours with --output-alpha, such as 1.5")
    return normalizer.alpha()
