"""What registers with fairseq as a criterion."""

from .entmax_loss import EntmaxLossCriterion
from .post_editing_loss import PostEditingLossCriterion

__all__ = ["EntmaxLossCriterion", "PostEditingLossCriterion"]
