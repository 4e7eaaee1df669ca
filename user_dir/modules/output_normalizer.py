"""What turns the scores of the output layer into probabilities: softmax, or α-entmax with a scheduled α."""

from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from ..entmax import entmax
from ..entmax.reference import entmax_forward
from ..errors import UserError, exit_on_user_error


class OutputNormalizer(nn.Module):
    """α-entmax of a model's output; without parameters, so checkpoints do not depend on it.

    Args:
        alpha: α, from 1 (softmax) to 2, after the schedule.
        start: α at the start of the schedule.
        updates: length of the schedule, which is linear, in updates.

    Raises:
        ValueError: a value is out of range; the message names it.
    """

    def __init__(self, alpha: float = 1.0, start: Optional[float] = None, updates: int = 0):
        super().__init__()
        start = alpha if start is None else start
        for name, value in (("output_alpha", alpha), ("output_alpha_start", start)):
            if not 1 <= value <= 2:
                raise ValueError(f"{name} must be from 1 to 2, not {value:g}")
        if (start != alpha) != (updates > 0):
            raise ValueError(
                f"output_alpha_start {start:g} and output_alpha_updates {updates} must be given together, "
                f"with a start that is not output_alpha {alpha:g}"
            )
        self.start = float(start)
        self.end = float(alpha)
        self.schedule_updates = updates
        # fairseq sets it before each update and when it loads a checkpoint for training or inference.
        self.updates = 0

    @property
    def is_softmax(self) -> bool:
        """Whether α is 1 throughout."""
        return self.start == 1 and self.end == 1

    def alpha(self) -> float:
        """α at the current update."""
        if self.updates >= self.schedule_updates:
            return self.end
        return self.start + (self.end - self.start) * self.updates / self.schedule_updates

    def forward(self, scores: Tensor, log_probs: bool) -> Tensor:
        """Probabilities, or their logarithms (−∞ outside the support), in float32 or float64; (…, V)."""
        alpha = self.alpha()
        scores = scores if scores.dtype == torch.float64 else scores.float()
        if alpha == 1.0:
            return torch.log_softmax(scores, -1) if log_probs else torch.softmax(scores, -1)
        if torch.jit.is_scripting():
            p = entmax_forward(scores, torch.tensor(alpha, dtype=torch.float64))
        else:
            p = entmax(scores, alpha)
        if not log_probs:
            return p
        zero = p == 0  # of which the logarithm takes ten times as long
        return p.masked_fill(zero, 1.0).log().masked_fill(zero, -float("inf"))

    def set_num_updates(self, num_updates: int) -> None:
        """Set the number of updates made; called by fairseq."""
        self.updates = num_updates

    def extra_repr(self) -> str:
        """Describe α for print(model)."""
        if not self.schedule_updates:
            return f"alpha={self.end:g}"
        return f"alpha={self.start:g} to {self.end:g} in {self.schedule_updates} updates"


class SparseOutput:
    """For a fairseq decoder: probabilities by its ``output_normalizer``."""

    def get_normalized_probs(
        self,
        net_output: Tuple[Tensor, Optional[Dict[str, List[Optional[Tensor]]]]],
        log_probs: bool,
        sample: Optional[Dict[str, Tensor]] = None,
    ):
        """Probabilities or log-probabilities, −∞ outside the support; see fairseq."""
        if self.output_normalizer.alpha() == 1.0:
            return self.get_normalized_probs_scriptable(net_output, log_probs, sample)
        if not torch.jit.is_scripting() and self.training and log_probs:
            _refuse_log_probs()
        return self.output_normalizer(net_output[0], log_probs)


def _refuse_log_probs() -> None:
    """End a training by a criterion that needs the logarithm of every probability."""
    with exit_on_user_error():
        raise UserError(
            "with --output-alpha most probabilities are exactly 0 and have no logarithm; "
            "train with --criterion entmax_loss"
        )
