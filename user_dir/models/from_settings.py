"""Convert a stock checkpoint to our model, without building it."""

from __future__ import annotations

import argparse
import math

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY

from ..checkpoint_settings import model_name, model_settings
from ..errors import UserError, as_checkpoint_error

OURS = ("adaptively_sparse_transformer", "adaptively_sparse_post_editor")
"""Our translation models, by fairseq's name of the model."""


def from_stock(state: dict, alpha: float) -> dict:
    """Convert a stock ``transformer`` checkpoint to this plugin's model with α fixed in every head."""
    if not 1 <= alpha < math.inf:
        raise UserError(f"--alpha must be at least 1 and finite, not {alpha:g}")
    name = model_name(state)
    if ARCH_MODEL_NAME_REGISTRY.get(name) != "transformer":
        raise UserError(f"the checkpoint is of a {name}, not of fairseq's stock transformer")
    with as_checkpoint_error("the checkpoint"):
        settings = argparse.Namespace(**model_settings(state))
        ARCH_CONFIG_REGISTRY[name](settings)  # make the sizes that its architecture implies explicit
        ours = "adaptively_sparse_transformer"
        settings._name = settings.arch = ours
        settings.attention_normalizer, settings.fixed_alpha = "entmax", alpha
        ARCH_CONFIG_REGISTRY[ours](settings)
    state["cfg"]["model"] = settings
    return state
