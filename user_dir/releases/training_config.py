"""The config that a checkpoint was trained with, as short as it can be."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from ..checkpoints import FILES, model_name
from ..config import significant_settings

# As in configs/: hydra would otherwise change to a folder of its own.
_HYDRA = {"run": {"dir": "${checkpoint.save_dir}"}, "job": {"chdir": False}, "output_subdir": None}


def training_config(state: dict) -> dict[str, dict]:
    """The settings of a training, for ``scripts/train.py``; without defaults, and without paths.

    Args:
        state: from :func:`~user_dir.checkpoints.for_inference`.
    """
    sections = {
        name: dict(section if isinstance(section, dict) else vars(section))
        for name, section in state["cfg"].items()
        if section is not None and name != "distributed_training"  # it is up to the machines
    }
    model = _beyond_architecture(model_name(state), sections["model"])
    significant = significant_settings({**sections, "model": model})
    kept = {
        name: {
            key: value for key, value in section.items() if value is not None and key not in {*FILES, "data"}
        }
        for name, section in significant.items()
    }
    return {name: section for name, section in kept.items() if section} | {"hydra": _HYDRA}


def _beyond_architecture(name: str, settings: dict) -> dict:
    """The settings of a model from which its architecture derives the others.

    fairseq-train stores every flag there is among them; only those of the model are kept.
    """
    if name not in ARCH_CONFIG_REGISTRY:
        return {**settings, "_name": name}
    parser = ArgumentParser(argument_default=SUPPRESS, allow_abbrev=False)
    ARCH_MODEL_REGISTRY[name].add_args(parser)
    settings = {key: settings[key] for key in (action.dest for action in parser._actions) if key in settings}

    def derived(given: dict) -> dict:
        args = Namespace(**{**vars(parser.parse_args([])), **given})
        ARCH_CONFIG_REGISTRY[name](args)
        return vars(args)

    default = derived({})
    kept = {key: value for key, value in settings.items() if default.get(key) != value}
    found = derived(kept)  # what has a default may depend on what has not
    kept |= {key: value for key, value in settings.items() if found.get(key) != value}
    return {"_name": name, **kept}
