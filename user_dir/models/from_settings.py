"""Read α from a checkpoint, or convert a stock checkpoint, without building the model."""

from __future__ import annotations

import argparse
import math

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY

from ..attention import Alpha
from ..checkpoints import model_name, model_settings, num_updates
from ..errors import UserError, as_checkpoint_error
from .settings import alpha_configs
from .transformer import NAME


def filled(name: str, settings: dict) -> argparse.Namespace:
    """The settings of one of our models, with the defaults of its size where they say nothing."""
    whole = MODEL_DATACLASS_REGISTRY[name]()
    for key, value in settings.items():
        if hasattr(whole, key):
            setattr(whole, key, value)
    return argparse.Namespace(**vars(whole))


def checkpoint_alphas(state: dict) -> dict[str, list[list[float]]]:
    """The α of each layer and head of one of our checkpoints, by attention type, without building the model.

    Raises:
        UserError: the checkpoint is of a model without α.
    """
    name = model_name(state)
    if name not in MODEL_DATACLASS_REGISTRY or not name.startswith("adaptively_sparse"):
        raise UserError(f"it is of a {name}, whose heads have no α")
    with as_checkpoint_error("it"):
        settings = filled(name, model_settings(state))
        return _alphas(settings, state["model"], num_updates(state))


def _alphas(settings, parameters: dict, updates: int) -> dict[str, list[list[float]]]:
    alphas = {}
    for attention_type, config in alpha_configs(settings).items():
        side = attention_type.split("_")[0]
        if not hasattr(settings, f"{side}_attention_heads"):  # a language model has no encoder
            continue
        attention = "encoder_attn" if attention_type == "decoder_context" else "self_attn"
        alpha = Alpha(getattr(settings, f"{side}_attention_heads"), config)
        alpha.set_num_updates(updates)
        layers = []
        while f"{side}.layers.{len(layers)}.{attention}.out_proj.weight" in parameters:
            if alpha.a is not None:
                learned = parameters[f"{side}.layers.{len(layers)}.{attention}.alpha.a"]
                alpha.load_state_dict({"a": learned})
            layers.append(alpha().detach().flatten().expand(alpha.num_heads).tolist())
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
        stock = argparse.Namespace(**model_settings(state))
        ARCH_CONFIG_REGISTRY[name](stock)  # make the sizes that its architecture implies explicit
        settings = filled(NAME, {**vars(stock), "attention_normalizer": "entmax", "fixed_alpha": alpha})
        settings._name = settings.arch = NAME
    state["cfg"]["model"] = settings
    return state
