"""How well the probabilities of a model's next tokens are calibrated."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Calibration:
    """Confidence and accuracy of predictions, in ``bins`` bins of equal width by confidence.

    The confidence of a prediction is the probability of the most probable token; it is correct if this is the
    token of the reference.
    """

    def __init__(self, bins: int = 20):
        # by bin: the number of predictions, and sums of their confidences and of the correct ones
        self.totals = torch.zeros(3, bins, dtype=torch.float64)

    def add(self, probabilities: Tensor, target: Tensor) -> None:
        """Add the predictions (N, V) of the tokens ``target`` (N,)."""
        confidence, predicted = probabilities.double().max(-1)
        confidence, correct = confidence.cpu(), (predicted == target).double().cpu()
        bins = self.totals.size(1)
        place = (confidence * bins).long().clamp(0, bins - 1)
        self.totals.index_add_(1, place, torch.stack([torch.ones_like(confidence), confidence, correct]))

    @property
    def error(self) -> float:
        """The expected calibration error: the mean of |accuracy − confidence| over bins, by their size.

        Source: Guo et al. 2017 (https://arxiv.org/abs/1706.04599), equation 3.
        """
        count, confidence, correct = self.totals
        return float((correct - confidence).abs().sum() / count.sum())

    @property
    def facts(self) -> dict:
        """The error, and for each bin with predictions their number, mean confidence and accuracy."""
        count, _, correct = self.totals.sum(1).tolist()
        return {
            "expected_calibration_error": self.error,
            "accuracy": correct / count,
            "tokens": int(count),
            "bins": [
                {"tokens": int(count), "confidence": confidence / count, "accuracy": correct / count}
                for count, confidence, correct in self.totals.T.tolist()
                if count
            ],
        }


@torch.no_grad()
def calibration(model, samples: Iterable[dict], padding: int, bins: int = 20) -> Calibration:
    """Calibration of a fairseq model's next tokens, given the reference up to there.

    ``samples`` are batches on the model's device, whose targets are padded with ``padding``.
    """
    found = Calibration(bins)
    for sample in samples:
        p = model.get_normalized_probs(model(**sample["net_input"]), log_probs=False)
        real = sample["target"].ne(padding)
        found.add(p[real], sample["target"][real])
    return found
