"""The loss of post-editors that copy from the machine translation, as a fairseq criterion."""

from dataclasses import dataclass, field

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II

from ..entmax import entmax_loss
from ..errors import UserError


@dataclass
class PostEditingLossConfig(FairseqDataclass):
    """The settings of the criterion."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "share of the target's weight that is spread over the vocabulary"}
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("post_editing_loss", dataclass=PostEditingLossConfig)
class PostEditingLossCriterion(FairseqCriterion):
    """For models with ``--copy-gate``: the sum of four losses, which stay finite where probabilities are 0.

    The α-entmax losses of the gate for each piece, of the pointer for each piece to be copied, and of the
    decision to leave the sentence alone; and the cross-entropy of each piece to be written (see
    :meth:`~.copy_gate.CopyGate.targets`). ``copied`` is the share of pieces to be copied, ``gate_right`` the
    share of right decisions by the gate.
    """

    def __init__(self, task, sentence_avg: bool, label_smoothing: float):
        super().__init__(task)
        self.sentence_avg, self.label_smoothing = sentence_avg, label_smoothing

    def forward(self, model, sample, reduce=True):
        """See fairseq: the loss, the sample size and what is logged."""
        gate = getattr(model.decoder, "copy_gate", None)
        if gate is None:
            raise UserError("--criterion post_editing_loss needs a post-editor with --copy-gate")
        features, extra = model(**sample["net_input"], features_only=True)
        target, decisions = sample["target"], extra["decisions"]
        previous = sample["net_input"]["prev_output_tokens"]
        place, copied, right = gate.targets(decisions.translation, previous, target)
        counted = target.ne(self.padding_idx)
        copied &= counted
        ignored = -100
        losses = {
            "vocabulary": self._vocabulary_loss(model, features, target, counted & ~copied),
            "gate": entmax_loss(decisions.gate, (~copied).long().masked_fill(~counted, ignored), gate.alpha),
            "pointer": entmax_loss(decisions.pointer, place.masked_fill(~copied, ignored), gate.alpha),
            "sentence": entmax_loss(decisions.sentence, (~right).long(), gate.alpha),
        }
        loss = sum(term.sum() for term in losses.values())
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        agrees = (decisions.gate[..., 0] > decisions.gate[..., 1]).eq(copied) & counted
        logged = {f"{name}_loss": term.sum().data for name, term in losses.items()}
        logged |= {"loss": loss.data, "copied": copied.sum().data, "gate_right": agrees.sum().data}
        logged |= {"targets": counted.sum().data, "ntokens": sample["ntokens"]}
        logged |= {"nsentences": target.size(0), "sample_size": sample_size}
        return loss, sample_size, logged

    def _vocabulary_loss(self, model, features, target, written):
        """The cross-entropy of the pieces to be written, given features (B, T, C) and targets (B, T)."""
        target = target.masked_fill(~written, self.padding_idx)
        if not features.is_cuda:  # a GPU would have to synchronise to count them
            features, target = features[written], target[written]
        return torch.nn.functional.cross_entropy(
            model.decoder.output_layer(features).float().flatten(0, -2),
            target.flatten(),
            ignore_index=self.padding_idx,
            label_smoothing=self.label_smoothing,
            reduction="none",
        )

    @staticmethod
    def reduce_metrics(logging_outputs) -> None:
        """Aggregate what the workers logged."""
        total = {name: sum(log.get(name, 0) for log in logging_outputs) for name in _LOGGED}
        if not total["targets"]:
            return
        size, tokens = total["sample_size"], total["targets"]
        for name in ("loss", *_LOSSES):
            metrics.log_scalar(name, total[name] / size, size, round=4)
        for name in ("copied", "gate_right"):
            metrics.log_scalar(name, total[name] / tokens, tokens, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: all values that are logged are sums."""
        return True


_LOSSES = ("vocabulary_loss", "gate_loss", "pointer_loss", "sentence_loss")
_LOGGED = ("loss", *_LOSSES, "copied", "gate_right", "targets", "sample_size")
