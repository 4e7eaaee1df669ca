"""How well the probabilities of a model's next tokens are calibrated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Calibration:
    """Confidence and accuracy of predictions, in bins of equal width by confidence.

    The confidence of a prediction is the probability of the most probable token; it is correct if this is the
    token of the reference.

    Args:
        bins: number of bins.
    """

    bins: int = 20

    def __post_init__(self) -> None:
        self.count, self.confidence, self.correct = (
            torch.zeros(self.bins, dtype=torch.float64) for _ in range(3)
        )

    def add(self, probabilities: Tensor, target: Tensor) -> None:
        """Add the predictions (N, V) of the tokens ``target`` (N,)."""
        confidence, predicted = probabilities.double().max(-1)
        confidence, correct = confidence.cpu(), (predicted == target).double().cpu()
        place = (confidence * self.bins).long().clamp(0, self.bins - 1)
        for total, values in (
            (self.count, torch.ones_like(confidence)),
            (self.confidence, confidence),
            (self.correct, correct),
        ):
            total.index_add_(0, place, values)

    @property
    def error(self) -> float:
        """The expected calibration error: the mean of |accuracy − confidence| over bins, by their size.

        Source: Guo et al. 2017 (https://arxiv.org/abs/1706.04599), equation 3.
        """
        return float((self.correct - self.confidence).abs().sum() / self.count.sum())

    @property
    def facts(self) -> dict:
        """The error, and for each bin with predictions their number, mean confidence and accuracy."""
        rows = zip(self.count.tolist(), self.confidence.tolist(), self.correct.tolist())
        return {
            "expected_calibration_error": self.error,
            "accuracy": float(self.correct.sum() / self.count.sum()),
            "tokens": int(self.count.sum()),
            "bins": [
                {"tokens": int(count), "confidence": confidence / count, "accuracy": correct / count}
                for count, confidence, correct in rows
                if count
            ],
        }


@torch.no_grad()
def calibration(model, samples: Iterable[dict], padding: int, bins: int = 20) -> Calibration:
    """Calibration of a model's next tokens, given the reference up to there.

    Args:
        model: a fairseq model, in evaluation mode.
        samples: batches on the model's device.
        padding: the padding symbol of targets.
        bins: number of bins.
    """
    found = Calibration(bins)
    for sample in samples:
        p = model.get_normalized_probs(model(**sample["net_input"]), log_probs=False)
        real = sample["target"].ne(padding)
        found.add(p[real], sample["target"][real])
    return found
