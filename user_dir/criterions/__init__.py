"""What registers with fairseq as a criterion."""

from .entmax_loss import EntmaxLossCriterion

__all__ = ["EntmaxLossCriterion"]
