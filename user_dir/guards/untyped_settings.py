"""A setting of the wrong type is taken for what it is not: ``share_all_embeddings: "no"`` shares.

fairseq-hydra-train (0.12 and later) checks the sections that have a dataclass. The section ``model`` of our
models and of fairseq's own ``transformer`` has none, so that any text is true, and a misspelled name has no
effect. ``--model-overrides`` and the keywords of ``from_pretrained`` are not checked either. Unnecessary once
every section has a dataclass.
"""

from argparse import Namespace

from fairseq import checkpoint_utils
from fairseq.dataclass import initialize
from omegaconf import DictConfig, OmegaConf, open_dict

from ..errors import UserError, exit_on_user_error
from ..sections import SECTIONS, section_dataclass
from ..setting_types import NUMBER, TRUTH, WHOLE_NUMBER, setting_types
from .announcing import OURS
from .installing import around


class WrongOverride(UserError):
    """What the caller would change in a checkpoint's settings is wrong; the checkpoint is not."""


@around(initialize, "add_defaults")
def add_defaults(add, cfg):
    """Convert settings to their types, or refuse them, when a training begins."""
    add(cfg)
    with exit_on_user_error():
        for section in SECTIONS:
            _convert(section, cfg.get(section))


@around(checkpoint_utils, "overwrite_args_by_name")
def overwrite_args_by_name(overwrite, cfg, overrides):
    """The same, when a checkpoint is read."""
    return overwrite(cfg, {**overrides, **_converted(cfg.get("model"), overrides)})


def _convert(section: str, settings) -> None:
    """Convert the settings of a section without dataclass in place; raises UserError."""
    if not isinstance(settings, DictConfig):  # of fairseq-train, whose parser has checked them
        return
    name = settings.get("_name")
    if section_dataclass(section, name) is not None:
        return
    types = setting_types(section, name) or {}
    for key, value in OmegaConf.to_container(settings, resolve=True).items():
        if key in types:
            try:
                converted = types[key](value)
            except ValueError as error:
                raise UserError(f"{section}.{key} {error}") from None
            with open_dict(settings):
                settings[key] = converted
        elif key != "_name" and section == "model" and str(name).startswith(OURS):
            raise UserError(f"unknown setting {section}.{key} of {name}")


def _converted(model, overrides: dict) -> dict:
    """Those of the overrides that are flags and numbers of the model; raises WrongOverride."""
    values = vars(model) if isinstance(model, Namespace) else (model or {})
    types = setting_types("model", values.get("_name") or values.get("arch")) or {}
    converted = {}
    for key, value in overrides.items():
        if types.get(key) in (TRUTH, WHOLE_NUMBER, NUMBER):
            try:
                converted[key] = types[key](value)
            except ValueError as error:
                raise WrongOverride(f"the override {key} of the model {error}") from None
    return converted
