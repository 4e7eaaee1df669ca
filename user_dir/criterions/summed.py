"""What our criterions share: a smoothing of labels, and a log of sums."""

from __future__ import annotations

from collections.abc import Iterable

from fairseq.criterions import FairseqCriterion

from ..errors import UserError, exit_on_user_error


class SummedCriterion(FairseqCriterion):
    """A criterion whose loss and log are sums over a batch."""

    def __init__(self, task, sentence_avg: bool, label_smoothing: float):
        super().__init__(task)
        if not 0 <= label_smoothing < 1:
            with exit_on_user_error():
                raise UserError(f"--label-smoothing must be at least 0 and below 1, not {label_smoothing:g}")
        self.sentence_avg, self.label_smoothing = sentence_avg, label_smoothing

    @staticmethod
    def totals(logging_outputs, names: Iterable[str]) -> dict:
        """What the workers logged under these names, added up."""
        return {name: sum(log.get(name, 0) for log in logging_outputs) for name in names}

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All of it are sums."""
        return True
