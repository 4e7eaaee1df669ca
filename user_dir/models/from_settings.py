"""Read α from a checkpoint, or convert a stock checkpoint, without building the model."""

from __future__ import annotations

import argparse
import math

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY

from ..alpha_settings import alpha_configs
from ..attention import Alpha
from ..checkpoints import model_name, model_settings, num_updates
from ..errors import UserError, as_checkpoint_error

OURS = ("adaptively_sparse_transformer", "adaptively_sparse_post_editor")
"""Our translation models, by fairseq's name of the model."""


def checkpoint_alphas(state: dict) -> dict[str, list[list[float]]]:
    """The α of each layer and head of one of our checkpoints, by attention type, without building the model.

    Raises:
        UserError: the checkpoint is of a model without α.
    """
    name = model_name(state)
    others = ("adaptively_sparse_masked_lm", "adaptively_sparse_transformer_lm")
    if ARCH_MODEL_NAME_REGISTRY.get(name) not in (*OURS, *others):
        raise UserError(f"it is of a {name}, whose heads have no α; use convert_checkpoint.py")
    with as_checkpoint_error("it"):
        return _alphas(state, name)


def _alphas(state: dict, name: str) -> dict[str, list[list[float]]]:
    settings = argparse.Namespace(**model_settings(state))
    ARCH_CONFIG_REGISTRY[name](settings)
    parameters, alphas = state["model"], {}
    for attention_type, config in alpha_configs(settings).items():
        side = attention_type.split("_")[0]
        if not hasattr(settings, f"{side}_attention_heads"):  # a language model has no encoder
            continue
        attention = "encoder_attn" if attention_type == "decoder_context" else "self_attn"
        shape = Alpha(getattr(settings, f"{side}_attention_heads"), config)
        shape.set_num_updates(num_updates(state))
        layers = []
        while f"{side}.layers.{len(layers)}.{attention}.out_proj.weight" in parameters:
            if shape.a is not None:
                learned = parameters[f"{side}.layers.{len(layers)}.{attention}.alpha.a"]
                shape.load_state_dict({"a": learned})
            layers.append(shape().detach().flatten().expand(shape.num_heads).tolist())
        if layers:
            alphas[attention_type] = layers
    return alphas


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
