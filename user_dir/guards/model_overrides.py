"""``--model-overrides`` is ignored silently if the checkpoint was trained by hydra without that setting.

Since fairseq 0.10.1. A config of hydra holds the settings that were given, and fairseq replaces no others.
Unnecessary once fairseq reports overrides that it does not use.
"""

from collections.abc import Iterator

from fairseq import checkpoint_utils
from omegaconf import DictConfig, OmegaConf, open_dict

from .announcing import OURS
from .installing import around


@around(checkpoint_utils, "overwrite_args_by_name")
def overwrite_args_by_name(overwrite, cfg, overrides):
    """Add the settings that a checkpoint of our models does not have."""
    known = set(_names(cfg))
    overwrite(cfg, overrides)
    model = cfg.get("model")
    if isinstance(model, DictConfig) and str(model.get("_name")).startswith(OURS):
        with open_dict(model):
            model.update({name: value for name, value in overrides.items() if name not in known})


def _names(cfg) -> Iterator[str]:
    """The names of all settings, of sections too."""
    for name in cfg:
        yield name
        if not OmegaConf.is_missing(cfg, name) and isinstance(cfg[name], DictConfig):
            yield from _names(cfg[name])
