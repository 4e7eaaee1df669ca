"""Numbers that the settings of a training may have: fairseq takes any, and trains nonsense or hangs."""

from argparse import Namespace
from collections.abc import Mapping
from fnmatch import fnmatch
from math import inf, nextafter
from typing import Any

from fairseq.dataclass import initialize
from fairseq.distributed import utils
from omegaconf import OmegaConf

from ..errors import UserError
from . import around

# Least and greatest value, and patterns of the names of settings, in any section.
RANGES = (
    (0, 1, ("*dropout", "*layerdrop", "momentum", "ema_decay")),
    (0, nextafter(1, 0), ("label_smoothing", "bpe_dropout")),
    (0, 1000, ("*coder_layers", "num_workers")),
    (0, inf, ("lr", "weight_decay", "clip_norm", "warmup_updates", "max_update", "max_epoch")),
    (0, inf, ("rdrop_weight", "save_interval_updates", "validate_interval_updates")),
    (1, inf, ("*_embed_dim", "*attention_heads", "max_*positions", "tokens_per_sample", "update_freq")),
    (1, inf, ("max_tokens*", "batch_size*", "*_interval", "distributed_world_size")),
)


def check_ranges(config: Mapping[str, Any]) -> None:
    """Raise UserError for a number out of its range; ``config`` has the settings of each section."""
    for section, settings in config.items():
        settings = vars(settings) if isinstance(settings, Namespace) else settings
        for key, value in settings.items() if isinstance(settings, Mapping) else ():
            for low, high, names in RANGES:
                known = any(fnmatch(key, name) for name in names)
                for number in value if isinstance(value, list) else [value]:
                    if known and isinstance(number, (int, float)) and not low <= number <= high:
                        raise UserError(f"{section}.{key} must be from {low} to {high}, not {number}")


@around(utils, "call_main")
def call_main(call, cfg, main, **kwargs):
    """Check the settings of a command."""
    check_ranges(OmegaConf.to_container(cfg))
    if cfg.eval_lm.context_window >= getattr(cfg.task, "tokens_per_sample", inf):
        raise UserError("--context-window must be less than --tokens-per-sample, of which it is a part")
    return call(cfg, main, **kwargs)


@around(initialize, "add_defaults")
def add_defaults(add, cfg) -> None:
    """Check the settings of a training, also where ``fairseq-hydra-train`` itself has read ``--user-dir``."""
    add(cfg)
    check_ranges(OmegaConf.to_container(cfg))
