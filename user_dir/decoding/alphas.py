"""The α of every head of a checkpoint, by which the search in C++ needs no torch."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from torch import Tensor

from ..alpha_settings import alpha_configs
from ..attention import Alpha, AlphaConfig
from ..attention.normalizers import NORMALIZERS
from ..attention.normalizers.alpha_entmax import AlphaEntmax
from ..attention.normalizers.rela import ReLA
from .from_state import RELA, Unknown, check_settings

_MODULES = {"encoder_self": "self_attn", "decoder_self": "self_attn", "decoder_context": "encoder_attn"}


def alphas_of(model: Mapping[str, Tensor], settings: Mapping[str, object], updates: int) -> dict[str, list]:
    """By attention type, of each layer the α of each head, or :data:`~.from_state.RELA`; as JSON has it.

    Args:
        model: the parameters.
        settings: of the model.
        updates: that it was trained for.

    Raises:
        Unknown: it is not known what the attention computes.
    """
    given = Namespace(**settings)
    check_settings(given)
    found = {}
    for attention_type, config in alpha_configs(given).items():
        kind = NORMALIZERS[config.attention_normalizer]
        if kind.forward is not AlphaEntmax.forward and kind is not ReLA:
            raise Unknown(f"its {attention_type} attention is by {config.attention_normalizer}")
        side = attention_type.partition("_")[0]
        absent = attention_type == "decoder_context" and given.no_cross_attention
        found[attention_type] = [
            RELA
            if kind is ReLA
            else _alpha(
                model,
                f"{side}.layers.{layer}.{_MODULES[attention_type]}.alpha.a",
                getattr(given, f"{side}_attention_heads"),
                config,
                updates,
            )
            for layer in range(0 if absent else getattr(given, f"{side}_layers"))
        ]
    return found


def _alpha(
    model: Mapping[str, Tensor], name: str, heads: int, config: AlphaConfig, updates: int
) -> list[float]:
    alpha = Alpha(heads, config)
    alpha.set_num_updates(updates)
    if alpha.a is not None:
        if name not in model or model[name].shape != alpha.a.shape:
            raise Unknown(f"it has no {name} of {alpha.a.numel()} numbers")
        alpha.a.data = model[name].float()
    return alpha().detach().flatten().double().expand(heads).tolist()
