"""Training configs: checked settings before fairseq starts, and the arguments of its command."""

from __future__ import annotations

import difflib
import logging
import re
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from . import tasks  # noqa: F401  registers models, tasks and criterions
from .errors import UserError, one_line
from .files import PLUGIN, check_output, command_words
from .guards.ranges import check_ranges

SECTIONS = tuple(section.name for section in fields(FairseqConfig) if not section.name.startswith("_"))


def training_arguments(path: Path, overrides: Iterable[str], root: Path) -> list[str]:
    """Check a config; return the arguments for ``fairseq-hydra-train`` to train with it.

    Args:
        path: the YAML file.
        overrides: settings that override it, as ``section.key=value`` or in hydra's grammar.
        root: the folder that paths in the config are relative to, in which the command must be run.
    """
    path = path.resolve()
    settings = [hydra_override(override) for override in overrides]
    settings.append(hydra_override(f"common.user_dir={PLUGIN}"))
    folder = check_config(path, settings, root).get("checkpoint", {}).get("save_dir", "checkpoints")
    check_output(root / folder / "checkpoint_last.pt")
    settings.append(hydra_override(f"hydra.run.dir={folder}"))  # where its log goes
    settings += ["hydra.job.chdir=false", "hydra.output_subdir=null"]
    return ["--config-dir", str(path.parent), "--config-name", path.stem, *settings]


def hydra_override(override: str) -> str:
    """Convert ``section.key=value`` to hydra's grammar, so that it sets existing and new keys.

    A value that hydra cannot read as one value, such as a path with a comma or ``=``, is taken literally.
    Overrides in hydra's grammar (``+key=value``, ``~key``) are unchanged.
    """
    if override.startswith(("+", "~")):
        return override
    key, equals, value = override.partition("=")
    if not equals:
        raise UserError(f"{override!r} is not of the form section.key=value")
    with suppress(HydraException), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hydra versions
        if not OverridesParser.create().parse_override(f"++{override}").is_sweep_override():
            return f"++{override}"
    # hydra reads a backslash as an escape only before a quote
    escaped = re.sub(r"\\+(?='|$)", lambda match: 2 * match[0], value).replace("'", "\\'")
    return f"++{key}='{escaped}'"


def check_config(path: Path, overrides: list[str], root: Path | None = None) -> dict[str, Any]:
    """The settings of a config with the overrides applied, each converted to its declared type.

    Args:
        path, overrides: as for :func:`training_arguments`; overrides in hydra's grammar only.
        root: the folder in which the binarised data must exist; None to skip this check.

    Raises:
        UserError: with the first error and its section.
    """
    config = _compose(path, overrides)
    for section, settings in config.items():
        if section not in SECTIONS:
            raise UserError(f"{path}: unknown section {section!r}; fairseq has {', '.join(SECTIONS)}")
        if not isinstance(settings, dict):
            raise UserError(f"{path}: {section} must have settings, not {settings!r}")
        declared = _dataclass(path, section, settings)
        if declared is not None:
            config[section] = _checked(path, section, declared, settings)
    check_ranges(config)
    data = (config.get("task") or {}).get("data")
    if not isinstance(data, str):
        raise UserError(f"{path}: task.data must name the folder of the binarised corpus")
    if root is not None and not all((root / folder).is_dir() for folder in utils.split_paths(data)):
        raise UserError(
            f"{path}: no binarised data in {root / data}; prepare the corpus first "
            f"({' '.join(command_words('prepare'))} {Path(data).parent.name})"
        )
    return config


def _dataclass(path: Path, section: str, settings: dict[str, Any]):
    """The dataclass of a section with all defaults; None if fairseq declares none."""
    default = getattr(FairseqConfig(), section)
    if is_dataclass(default):
        return default
    registry = REGISTRIES.get(section, {})
    dataclasses, names = registry.get("dataclass_registry", {}), registry.get("registry", {})
    if section == "model":
        dataclasses, names = MODEL_DATACLASS_REGISTRY, ARCH_MODEL_REGISTRY
    elif section == "task":
        dataclasses = names = TASK_DATACLASS_REGISTRY
    name = settings.get("_name")
    if not isinstance(name, str) or (names and name not in names):
        meant = _meant(name, names)
        raise UserError(f"{path}: {section}._name is {name!r}, which is not registered{meant}")
    return dataclasses[name]() if name in dataclasses else None


def _meant(name: Any, known: Iterable[str], prefix: str = "") -> str:
    """The end of a message about an unknown name: the known one that is closest, if any is."""
    close = difflib.get_close_matches(str(name), list(map(str, known)), n=1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def _compose(path: Path, overrides: list[str]) -> dict[str, Any]:
    """Compose the config as hydra does."""
    if not path.is_file():
        raise UserError(f"no config {path}")
    if path.suffix != ".yaml" or path.stem == "config":
        raise UserError(f"{path}: the name must end in .yaml, and config.yaml is reserved by fairseq")
    logging.getLogger("hydra").setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about hydra versions
            with initialize_config_dir(str(path.parent)):
                config = compose(path.stem, overrides)
        return OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: {one_line(error)}") from None


def _checked(path: Path, section: str, declared: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a section, converted to their types; raises UserError for one that does not fit."""
    schema, checked = OmegaConf.structured(declared), {}
    for key, value in settings.items():
        try:
            merged = OmegaConf.merge(schema, {key: value})
            checked[key] = OmegaConf.to_container(merged, resolve=False, enum_to_str=True)[key]
        except OmegaConfBaseException as error:
            meant = "" if key in schema else _meant(key, schema, f"{section}.")
            reason = str(error).split("\n")[0]
            raise UserError(f"{path}: {section}.{key} is {value!r}: {reason}{meant}") from None
    return checked
