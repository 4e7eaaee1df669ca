"""Comparison of a run's settings with recorded ones without fairseq, whose import takes seconds.

It only answers "certainly the same" or "not known". In the second case, :mod:`user_dir.config` composes,
validates and compares the settings with fairseq.
"""

from __future__ import annotations

import copy
import functools
import re
import warnings
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ..io import read_text
from ..yaml_files import MAX_YAML

DEFAULTS = {
    "checkpoint": {
        "best_checkpoint_metric": "loss",
        "maximize_best_checkpoint_metric": False,
        "patience": -1,
    },
    "task": {"eval_bleu": False, "eval_bleu_args": "{}", "eval_bleu_remove_bpe": None},  # of translation
}
"""fairseq's defaults that ``stop_early: false`` in an experiment's file spells out, by section."""

HYDRA_KEYS = {"run", "job", "output_subdir"}  # of the section hydra; they do not change how it composes


class _NotPlain(Exception):
    """The config or an override uses more of hydra than this module knows."""


def surely_equal(before: dict, now: dict) -> bool:
    """Whether the settings of two runs differ at most in spelling out :data:`DEFAULTS`."""
    return _without_defaults(before) == _without_defaults(now)


def plain_settings(path: Path, overrides: tuple[str, ...]) -> dict | None:
    """Compose a config as hydra does, if it and its overrides (``section.key=value``) are simple enough.

    Returns:
        What :func:`user_dir.config.check_settings` returns for valid settings, or None: not known. The
        settings are not validated.
    """
    try:
        config = copy.deepcopy(_read_config(path))
        for override in overrides:
            (section, *inner, key), value = _parse(override)
            settings = config.setdefault(section, {})
            for name in inner:  # KeyError: hydra decides what becomes of it
                settings = settings[name]
            if not isinstance(settings, dict) or isinstance(settings.get(key), dict):
                return None
            settings[key] = value
        if "${" in str(config):
            config = OmegaConf.to_container(OmegaConf.create(config), resolve=True)
    except (
        _NotPlain,
        HydraException,
        OmegaConfBaseException,
        YAMLError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):
        return None
    return config


@functools.cache
def _read_config(path: Path) -> dict:
    """A config with the files that its defaults list names."""
    config = copy.deepcopy(_read(path))
    defaults = config.pop("defaults", ["_self_"])
    if path.suffix != ".yaml" or path.stem == "config" or defaults[:1] != ["_self_"]:
        raise _NotPlain
    own = {section: {*settings} for section, settings in config.items() if isinstance(settings, dict)}
    for name in defaults[1:]:  # each overrides those before
        if not isinstance(name, str) or not name.isidentifier():
            raise _NotPlain
        for section, settings in _read(path.with_name(f"{name}.yaml")).items():
            mine = config.setdefault(section, {})
            if section == "defaults" or not isinstance(settings, dict) or not isinstance(mine, dict):
                raise _NotPlain
            if own.get(section, set()) & settings.keys():
                raise _NotPlain
            mine.update(settings)
    if not config.pop("hydra", {}).keys() <= HYDRA_KEYS:
        raise _NotPlain
    return config


@functools.cache
def _read(path: Path) -> dict:
    text = read_text(path, "the settings", most=MAX_YAML)
    if "@package" in text or re.search(r"\$\{(?![\w.]+\})", text):  # anything but ${section.key}
        raise _NotPlain
    values = OmegaConf.to_container(OmegaConf.create(text))
    if not isinstance(values, dict):
        raise _NotPlain
    return values


@functools.cache
def _parse(override: str) -> tuple[list[str], Any]:
    """Section and key of an override, and its value as hydra reads it."""
    if override.startswith(("+", "~")) or "${" in override:
        raise _NotPlain
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hydra versions
        parsed = OverridesParser.create().parse_override(f"++{override}")
    place, value = parsed.key_or_group.split("."), parsed.value()
    if len(place) < 2 or parsed.package is not None or parsed.is_sweep_override() or isinstance(value, dict):
        raise _NotPlain
    return place, value


def _without_defaults(found: dict) -> dict:
    config = found.get("config")
    if not isinstance(config, dict):
        return found
    kept = dict(config)
    for section, defaults in DEFAULTS.items():
        settings = config.get(section)
        if not isinstance(settings, dict) or (section == "task" and settings.get("_name") != "translation"):
            continue
        kept[section] = {
            key: value for key, value in settings.items() if key not in defaults or defaults[key] != value
        }
    return {**found, "config": kept}
