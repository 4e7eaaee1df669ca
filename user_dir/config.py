"""Training configs: checked settings before fairseq starts, and the training command."""

from __future__ import annotations

import difflib
import logging
import os
import sys
import warnings
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

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
from .files import PLUGIN, command_words

SECTIONS = tuple(section.name for section in fields(FairseqConfig) if not section.name.startswith("_"))
# glibc returns the memory of large CPU tensors to the system when they are freed, and the system clears it
# before reuse, for every large tensor of every update. Keeping the memory is faster but needs more of it.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def training_command(path: Path, overrides: Iterable[str], root: Path) -> tuple[list[str], dict[str, str]]:
    """Check a config; return the command that trains with it, and the environment to run it in.

    Args:
        path: the YAML file.
        overrides: settings that override it, as ``section.key=value`` or in hydra's grammar.
        root: the folder that paths in it are relative to, in which the command must be run.
    """
    path = path.resolve()
    settings = [hydra_override(override) for override in overrides]
    settings += [hydra_override(f"common.user_dir={PLUGIN}")]
    settings += extra_overrides(check_config(path, settings, root))
    command = [sys.executable, "-W", "ignore::UserWarning", "-W", "ignore::FutureWarning"]
    command += ["-m", "fairseq_cli.hydra_train"]
    command += ["--config-dir", str(path.parent), "--config-name", path.stem]
    return [*command, *settings], {**KEEP_MEMORY, **os.environ}


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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about hydra versions
            if not OverridesParser.create().parse_override(f"++{override}").is_sweep_override():
                return f"++{override}"
    except HydraException:
        pass
    return f"++{key}=" + "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def check_config(path: Path, overrides: list[str], root: Path) -> dict[str, Any]:
    """The settings of a config with the overrides applied, each of its type; its data is there.

    Raises:
        UserError: with the first error and its section.
    """
    config = check_settings(path, overrides)
    data = config["task"]["data"]
    for folder in [data] if os.path.isdir(root / data) else data.split(":"):
        if not (root / folder).is_dir():
            raise UserError(
                f"{path}: no binarised data in {root / folder}; prepare the corpus first "
                f"({' '.join(command_words('prepare'))})"
            )
    return config


def check_settings(path: Path, overrides: list[str]) -> dict[str, Any]:
    """The part of :func:`check_config` that needs no data."""
    config = _compose(path, overrides)
    for section, settings in config.items():
        if section not in SECTIONS:
            raise UserError(f"{path}: unknown section {section!r}; fairseq has {', '.join(SECTIONS)}")
        declared = section_dataclass(path, section, settings)
        if declared is not None:
            config[section] = _checked(path, section, declared, settings)
    if not isinstance((config.get("task") or {}).get("data"), str):
        raise UserError(f"{path}: task.data must name the folder of the binarised corpus")
    return config


def section_dataclass(path: Path, section: str, settings: Any):
    """The dataclass of a section with all defaults; None if fairseq declares none."""
    default = getattr(FairseqConfig(), section)
    if is_dataclass(default):
        return default
    name = settings.get("_name") if isinstance(settings, dict) else None
    if section == "model":
        dataclasses, names = MODEL_DATACLASS_REGISTRY, ARCH_MODEL_REGISTRY
    elif section == "task":
        dataclasses = names = TASK_DATACLASS_REGISTRY
    else:
        dataclasses = REGISTRIES.get(section, {}).get("dataclass_registry", {})
        names = REGISTRIES.get(section, {}).get("registry", {})
    if not isinstance(name, str) or (names and name not in names):
        close = difflib.get_close_matches(str(name), [str(known) for known in names], n=3)
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UserError(f"{path}: {section}._name is {name!r}, which is not registered{meant}")
    return dataclasses[name]() if name in dataclasses else None


def extra_overrides(config: dict[str, Any]) -> list[str]:
    """Settings for several workers, and for hydra, that every training needs; in hydra's grammar."""
    from .guards.training import READ_BY_EACH, launched_workers

    overrides = [f"++checkpoint.{READ_BY_EACH}=true", "hydra.job.chdir=false", "hydra.output_subdir=null"]
    folder = (config.get("checkpoint") or {}).get("save_dir", "checkpoints")
    overrides.append(hydra_override(f"hydra.run.dir={folder}"))  # where its log goes
    distributed = config.get("distributed_training") or {}
    if distributed.get("distributed_init_method") is None:
        cpu = bool((config.get("common") or {}).get("cpu"))
        settings = launched_workers(distributed.get("ddp_backend", "pytorch_ddp"), cpu)
        overrides += [f"++distributed_training.{name}='{value}'" for name, value in settings.items()]
    return overrides


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


def _checked(path: Path, section: str, declared: Any, settings: Any) -> dict[str, Any]:
    """The settings of a section, converted to their types; raises UserError for one that does not fit."""
    schema, checked = OmegaConf.structured(declared), {}
    if not isinstance(settings, dict):
        raise UserError(f"{path}: {section} must have settings, not {settings!r}")
    for key, value in settings.items():
        try:
            merged = OmegaConf.merge(schema, {key: value})
            checked[key] = OmegaConf.to_container(merged, resolve=False, enum_to_str=True)[key]
        except OmegaConfBaseException as error:
            close = difflib.get_close_matches(str(key), list(schema), n=1) if key not in schema else []
            meant = f"; did you mean {section}.{close[0]}?" if close else ""
            reason = str(error).split("\n")[0]
            raise UserError(f"{path}: {section}.{key} is {value!r}: {reason}{meant}") from None
    return checked
