"""The settings of all models: each is declared once, as a field of one flat dataclass per model.

fairseq makes flags of the fields (``encoder_layers`` becomes ``--encoder-layers``), and OmegaConf checks
their types in configs, checkpoints and the keywords of ``from_pretrained``. A size is a subclass of the
dataclass with other defaults, registered under a name of its own.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, make_dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models import (
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    register_model,
)
from omegaconf import DictConfig, OmegaConf

from ..attention import ATTENTION_TYPES, AlphaConfig
from ..attention.alpha import described
from ..errors import UserError

# fairseq's settings that would replace our attention or embeddings, or only serve its earlier checkpoints.
_LEFT_OUT = (
    *("encoder_xformers_att_config", "decoder_xformers_att_config", "char_inputs", "export"),
    *("character_embeddings", "character_filters", "character_embedding_dim", "char_embedder_highway_layers"),
)
# A setting of one attention type → the general settings that contradict it and do not apply to that type.
_VOIDS = {
    "attention_normalizer": ("fixed_alpha", "alpha_schedule", "alpha_schedule_updates"),
    "fixed_alpha": ("attention_normalizer", "alpha_schedule", "alpha_schedule_updates"),
    "alpha_init": ("attention_normalizer", "fixed_alpha", "alpha_schedule", "alpha_schedule_updates"),
    "alpha_schedule": ("attention_normalizer", "fixed_alpha", "alpha_init"),
}
Setting = tuple[str, Any, Field]
"""The name, type and field of a setting, as :func:`dataclasses.make_dataclass` takes them."""


def setting(name: str, kind: Any, default: Any, text: Optional[str]) -> Setting:
    """One setting, with its default and the text of its flag."""
    return name, kind, described(default, text)


def flattened(config: type, prefix: str = "") -> list[Setting]:
    """The fields of one of fairseq's configs, which may be nested, under the names of its flags."""
    settings: list[Setting] = []
    for entry in fields(config):
        name = prefix + entry.name
        default = entry.default if entry.default is not MISSING else entry.default_factory()
        if is_dataclass(default):
            settings += flattened(default, f"{name}_")
        elif isinstance(default, str) and default.startswith("${"):
            if default.startswith("${model."):  # the width of another part; else a setting of the task
                settings.append(setting(name, Optional[int], None, entry.metadata.get("help")))
        elif not entry.name.startswith("_") and name not in _LEFT_OUT:
            # fairseq reads these as text when it prunes layers
            kind = Optional[str] if entry.name == "layers_to_keep" else entry.type
            settings.append(setting(name, kind, default, entry.metadata.get("help")))
    return settings


@dataclass
class AttentionSettings:
    """The settings of attention other than those of α."""

    alpha_log: Optional[str] = described(None, "append every α to this JSON lines file")
    alpha_log_interval: int = described(100, "updates between lines of it")
    attention_backend: str = described(
        "auto",
        "implementation of attention: fused, a kernel for the device that does not store the weights "
        "(refuses to run if there is none, or if it does not support the training settings; auto is "
        "used where weights are requested, as for alignments); dense, which stores the weights; auto, "
        "the faster one that is supported",
    )
    length_scaling: bool = described(
        False,
        "scale every query by a learned power of the logarithm of the number of keys that it sees "
        "(ASEntmax), for any --attention-normalizer",
    )
    keys_per_query: Optional[float] = described(
        None,
        "move the α of each head until its queries attend to so many keys on average; α's start at "
        "--alpha-init (with this 1.01 by default), and the loss of 100 updates is the dense model's",
    )
    keys_per_query_max_loss: float = described(
        0.01,
        "share by which the running loss may exceed the dense model's; beyond it, α's fall again",
    )
    cuda_graphs: str = described(
        "auto",
        "replay forward, criterion and backward of a training from CUDA graphs: auto, where that is "
        "possible; off; on, or stop with the reason; on a CPU, on computes on the same padded buffers",
    )


@dataclass
class OutputSettings:
    """α of the output layer."""

    output_alpha: float = described(
        1.0,
        "α-entmax instead of softmax at the output, with this α, above 1 up to 2; train with --criterion "
        "entmax_loss",
    )
    output_alpha_start: Optional[float] = described(None, "move the output's α from here to --output-alpha")
    output_alpha_updates: int = described(0, "in so many updates, linearly")


def alpha_settings() -> list[Setting]:
    """The fields of AlphaConfig, general and for each attention type, and the other settings of attention."""
    by_type = [
        setting(
            f"{attention_type}_{entry.name}",
            Optional[entry.type],
            None,
            f"{attention_type.replace('_', ' ')}: {entry.metadata['help']}",
        )
        for attention_type in ATTENTION_TYPES
        for entry in fields(AlphaConfig)
    ]
    return [*flattened(AlphaConfig), *by_type, *flattened(AttentionSettings)]


def make_settings(name: str, settings: Iterable[Setting], base: type = FairseqDataclass) -> type:
    """A dataclass of settings; the last of several with the same name counts."""
    unique = {entry[0]: entry for entry in settings}
    return make_dataclass(name, list(unique.values()), bases=(base,), namespace={"__module__": __name__})


def register(name: str, settings: type, sizes: dict[str, dict[str, Any]]) -> Callable[[type], type]:
    """A class decorator: register a model with fairseq, under ``name`` + suffix for each of its sizes.

    Args:
        name: fairseq's name of the model.
        settings: the dataclass of its settings; its flags are made of it.
        sizes: defaults that differ, by suffix; the suffix of the model itself is empty.
    """

    known = {entry.name: entry for entry in fields(settings)}

    def registered(model: type) -> type:
        model.settings, model.architecture = settings, name
        for suffix, defaults in sizes.items():
            others = [
                setting(key, known[key].type, value, known[key].metadata["help"])
                for key, value in defaults.items()
            ]
            sized = make_settings(f"{model.__name__}Settings{suffix}", others, base=settings)
            # a class per size, because fairseq stores the dataclass in it
            named = {"__module__": model.__module__, "__doc__": model.__doc__, "sized": model}
            kind = type(model.__name__, (model,), named)
            register_model(name + suffix, dataclass=sized)(kind)
        return model

    return registered


def as_namespace(settings: Any) -> Namespace:
    """Settings as flat attributes, from a dataclass, a namespace or a section of a config."""
    if isinstance(settings, DictConfig):
        return Namespace(**OmegaConf.to_container(settings, resolve=True, enum_to_str=True))
    return Namespace(**vars(settings))


def exact_type(module: Any) -> type:
    """The type of a module; for a size of one of our models, the class of that model."""
    return vars(type(module)).get("sized", type(module))


def family(name: str) -> Optional[str]:
    """The model that an architecture is a size of, such as ``transformer``; None if there is no such."""
    model = ARCH_MODEL_REGISTRY.get(name)
    return getattr(model, "architecture", ARCH_MODEL_NAME_REGISTRY.get(name))


def filled(name: str, settings: dict[str, Any]) -> Namespace:
    """The settings of one of our models, with the defaults of its size where a checkpoint says nothing."""
    whole = MODEL_DATACLASS_REGISTRY[name]()
    for key, value in settings.items():
        if hasattr(whole, key):
            setattr(whole, key, value)
    return Namespace(**vars(whole))


def alpha_configs(args) -> dict[str, AlphaConfig]:
    """The settings of α of each attention type: its own where given, else the general ones.

    Raises:
        UserError: a value is invalid, or values contradict each other.
    """
    general, configs = _given(args, ""), {}
    for attention_type in ATTENTION_TYPES:
        own = _given(args, attention_type + "_")
        void = {name for setting in own for name in _VOIDS.get(setting, ())}
        values = {name: value for name, value in general.items() if name not in void}
        if getattr(args, "keys_per_query", None) is not None:  # which starts from a dense model
            values.setdefault("alpha_init", 1.01)
        try:
            configs[attention_type] = AlphaConfig(**values | own)
        except ValueError as error:
            raise UserError(f"{attention_type}: {error}") from None
    first, *others = configs.values()
    if any(config.alpha_tying == "model" for config in configs.values()) and any(
        config != first for config in others
    ):
        raise UserError("--alpha-tying model shares one α, so attention types cannot have different settings")
    return configs


def _given(args, prefix: str) -> dict[str, Any]:
    """The fields of AlphaConfig that are given under a prefix."""
    values = {entry.name: getattr(args, prefix + entry.name, None) for entry in fields(AlphaConfig)}
    return {name: value for name, value in values.items() if value is not None}
