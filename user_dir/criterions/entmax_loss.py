"""The α-entmax loss as a fairseq criterion, for models whose output layer is α-entmax."""

from dataclasses import dataclass, field

from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II

from ..entmax import entmax_loss_and_support
from ..errors import UserError, exit_on_user_error


@dataclass
class EntmaxLossConfig(FairseqDataclass):
    """The settings of the criterion; α is a setting of the model."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "share s of the target's weight that is spread over all tokens"}
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("entmax_loss", dataclass=EntmaxLossConfig)
class EntmaxLossCriterion(FairseqCriterion):
    """The α-entmax loss (:func:`~user_dir.entmax.entmax_loss`) with the α of the model's ``--output-alpha``.

    The log line has the loss per token (in nats at α = 1; no perplexity, which is meaningless where p = 0),
    the mean size of the support in tokens (``support``) and the share of exact zeros (``output_zeros``).
    """

    def __init__(self, task, sentence_avg: bool, label_smoothing: float):
        super().__init__(task)
        if not 0 <= label_smoothing < 1:
            with exit_on_user_error():
                raise UserError(f"--label-smoothing must be at least 0 and below 1, not {label_smoothing:g}")
        self.sentence_avg, self.label_smoothing = sentence_avg, label_smoothing

    def forward(self, model, sample, reduce=True):
        """See fairseq: the loss, the sample size and what is logged."""
        alpha = output_alpha(model)
        net_output = model(**sample["net_input"])
        logits, target = net_output[0], model.get_targets(sample, net_output)
        losses, support = entmax_loss_and_support(
            logits, target, alpha, label_smoothing=self.label_smoothing, ignore_index=self.padding_idx
        )
        loss = losses.sum() if reduce else losses.view(-1)
        ntokens, nsentences = sample["ntokens"], target.size(0)
        sample_size = nsentences if self.sentence_avg else ntokens
        logged = {
            "loss": loss.data,
            "ntokens": ntokens,
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
        total = {key: sum(log.get(key, 0) for log in logging_outputs) for key in _LOGGED}
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
        """All of it are sums."""
        return True


_LOGGED = ("loss", "sample_size", "support", "targets", "symbols", "batches")


def output_alpha(model) -> float:
    """The α of a model's output layer; ends the run with a message if it is a softmax."""
    normalizer = getattr(getattr(model, "decoder", None), "output_normalizer", None)
    with exit_on_user_error():
        if normalizer is None:
            raise UserError(
                "--criterion entmax_loss trains only models of this plugin, such as "
                "--arch adaptively_sparse_transformer"
            )
        if normalizer.is_softmax:
            raise UserError("--criterion entmax_loss needs a model with --output-alpha, such as 1.5")
    return normalizer.alpha()
