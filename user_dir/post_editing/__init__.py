"""Automatic post-editing: a BERT that corrects machine translations, its pretraining and its losses."""

from . import moving_average
from .loss import PostEditingLossCriterion
from .masked_lm import AdaptivelySparseMaskedLM
from .model import AdaptivelySparsePostEditor

__all__ = [
    "AdaptivelySparseMaskedLM",
    "AdaptivelySparsePostEditor",
    "PostEditingLossCriterion",
    "moving_average",
]
