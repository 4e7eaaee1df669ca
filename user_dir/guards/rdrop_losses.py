"""fairseq's criterion of R-Drop logs losses of two passes: perplexity is squared, in validation as well.

``label_smoothed_cross_entropy_with_rdrop`` passes every batch through the model twice, also where there is no
dropout, and adds up what the log divides by the words of one pass. With this guard, validation makes one
pass, with the loss of ``label_smoothed_cross_entropy``; in training, the loss stays that of both passes, with
their divergence, and perplexity is their mean. Unnecessary once fairseq counts the words of both passes, and
validates with one.
"""

from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import (
    RdropLabelSmoothedCrossEntropyCriterion,
)

from .installing import around


@around(RdropLabelSmoothedCrossEntropyCriterion, "forward")
def forward(compute, self, model, sample, reduce=True, net_output=None):
    """Compute the loss as fairseq does; see above for what is different."""
    weight = self.rdrop_alpha
    if weight <= 0 or net_output is not None:
        return compute(self, model, sample, reduce, net_output)
    if not model.training:
        self.rdrop_alpha = 0
    try:
        loss, size, logged = compute(self, model, sample, reduce)
    finally:
        self.rdrop_alpha = weight
    if model.training:
        logged["nll_loss"] = logged["nll_loss"] / 2
    return loss, size, logged
