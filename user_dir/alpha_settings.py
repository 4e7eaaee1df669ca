"""The α of each attention type, from a model's settings; without fairseq."""

from __future__ import annotations

import re
from dataclasses import fields

from .attention import ATTENTION_TYPES, AlphaConfig
from .errors import UserError

ALPHA_FIELDS = tuple(field.name for field in fields(AlphaConfig))
_FIELD = re.compile(rf"(?<!['\w])({'|'.join(ALPHA_FIELDS)})(?!['\w])")  # a field, but not a quoted value
# A flag of one attention type → the general flags that contradict it and do not apply to that type.
_VOIDS = {
    "attention_normalizer": ("fixed_alpha", "alpha_schedule", "alpha_schedule_updates"),
    "fixed_alpha": ("attention_normalizer", "alpha_schedule", "alpha_schedule_updates"),
    "alpha_init": ("attention_normalizer", "fixed_alpha", "alpha_schedule", "alpha_schedule_updates"),
    "alpha_schedule": ("attention_normalizer", "fixed_alpha", "alpha_init"),
}


def alpha_configs(args) -> dict[str, AlphaConfig]:
    """The settings of each attention type: its own flag if given, else the general flag, else the default.

    Raises:
        UserError: a value is invalid, or values contradict each other.
    """
    interval = getattr(args, "alpha_log_interval", None)
    if interval is not None and (not isinstance(interval, int) or interval <= 0):
        raise UserError(f"--alpha-log-interval must be a positive integer, not {interval!r}")
    configs = {attention_type: _alpha_config(args, attention_type) for attention_type in ATTENTION_TYPES}
    updates = getattr(args, "alpha_schedule_updates", None)
    if updates and not any(config.scheduled for config in configs.values()):
        raise UserError(f"--alpha-schedule-updates {updates} requires --alpha-schedule linear or cosine")
    first, *others = configs.values()
    if any(each.alpha_tying == "model" for each in configs.values()) and any(
        each != first for each in others
    ):
        raise UserError("--alpha-tying model shares one α, so attention types cannot have different settings")
    return configs


def _alpha_config(args, attention_type: str) -> AlphaConfig:
    common = _given(args, "")
    own = _given(args, attention_type + "_")
    void = {name for given in own for name in _VOIDS.get(given, ())}
    common = {name: value for name, value in common.items() if name not in void}
    try:
        return AlphaConfig(**{**common, **own})
    except ValueError as error:
        message = _FIELD.sub(lambda found: "--" + found[0].replace("_", "-"), str(error))
        raise UserError(f"{attention_type}: {message}" if own else message) from None


def _given(args, prefix: str) -> dict:
    values = {name: getattr(args, prefix + name, None) for name in ALPHA_FIELDS}
    return {name: value for name, value in values.items() if value is not None}
