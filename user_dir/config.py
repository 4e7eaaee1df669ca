"""Training configs: validation before fairseq starts, and the training command."""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import hydra
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from . import models  # noqa: F401  registers the architectures
from .checkout import command_words
from .corpora.binarised import check_split
from .errors import UserError
from .guards.training import READ_BY_EACH, launched_workers
from .io import check_output
from .overrides import hydra_override, quoted
from .sections import SECTIONS, section_dataclass
from .setting_types import TEXT, setting_types
from .yaml_files import line_of, read_yaml

PLUGIN = Path(__file__).resolve().parent

_PAIRS = ("translation", "translation_with_bpe_dropout")  # tasks whose data is that of the translation task

# glibc returns the memory of large CPU tensors to the system when they are freed, and the system clears it
# before reuse, for every large tensor of every update. Keeping the memory is faster but needs more of it.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def hydra_overrides(path: Path, overrides: Iterable[str]) -> list[str]:
    """Overrides of a config, ``section.key=value``, in hydra's grammar; see :func:`.hydra_override`.

    Raises:
        UserError: one is not an override, or the config cannot be read.
    """
    overrides = list(overrides)
    names = _chosen_names(path, overrides)

    def is_text(section: str, key: str) -> bool:
        types = setting_types(section, names.get(section)) if section in SECTIONS else None
        return (types or {}).get(key) is TEXT

    return [hydra_override(override, is_text) for override in overrides]


def _chosen_names(path: Path, overrides: Iterable[str]) -> dict[str, str]:
    """The ``_name`` of each section, as the config's files and the overrides say."""
    names = {}
    if path.is_file():
        for file in [*_beside(path), path]:
            for section, settings in (_sections(file) if file.is_file() else {}).items():
                if isinstance(settings, dict) and isinstance(settings.get("_name"), str):
                    names[section] = settings["_name"]
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        section, _, inner = key.partition(".")
        if inner == "_name":
            names[section] = value.strip("'\"")
    return names


def training_command(path: Path, overrides: list[str], root: Path) -> tuple[list[str], dict[str, str]]:
    """Validate a config; return the command that trains with it, and the environment to run it in.

    Args:
        path: the YAML file.
        overrides: settings that override it, as ``section.key=value`` or in hydra's grammar.
        root: the folder that paths in it are relative to, in which the command must be run.

    Raises:
        UserError: see :func:`check_config`.
    """
    path = path.resolve()
    # Quoted, because hydra would interpret a comma in a path as several runs.
    settings = [*hydra_overrides(path, overrides), f"++common.user_dir={quoted(str(PLUGIN))}"]
    settings += worker_overrides(check_config(path, settings, root))
    command = [sys.executable, "-W", "ignore::UserWarning", "-W", "ignore::FutureWarning"]
    command += ["-m", "fairseq_cli.hydra_train"]
    command += ["--config-dir", str(path.parent), "--config-name", path.stem]
    return [*command, *settings], {**KEEP_MEMORY, **os.environ}


def check_config(path: Path, overrides: list[str], root: Path) -> dict:
    """Validate a fairseq-hydra-train config, and the data and folders that it names.

    Args:
        path: the YAML file.
        overrides: settings that override it, in hydra's grammar.
        root: the folder that paths in it are relative to.

    Returns:
        The settings with the overrides applied, each converted to its type (:mod:`.setting_types`).

    Raises:
        UserError: with the first error and its place.
    """
    config = check_settings(path, overrides)
    _check_outputs(path, config, root)
    _check_seed(path, config)
    _check_data(path, config["task"]["data"], root)
    _check_binarised(config, root)
    return config


def check_settings(path: Path, overrides: list[str]) -> dict:
    """The part of :func:`check_config` that needs neither data nor folders; returns the same settings."""
    config = _compose(path, overrides)
    for section in config:
        if section not in SECTIONS:
            where = _place(path, section)
            meant = [f"{each}.{section}" for each in SECTIONS if section in _types(each, config.get(each))]
            known = f"did you mean {' or '.join(meant)}?" if meant else f"fairseq has {', '.join(SECTIONS)}"
            raise UserError(f"{where}: unknown section {section!r}; {known}")
        config[section] = _checked_section(path, section, config[section])
    _check_model(path, config.get("model"))
    task = config.get("task")
    data = task.get("data") if isinstance(task, dict) else None
    if not isinstance(data, str):
        raise UserError(f"{path}: task.data must name the folder of the binarised corpus, not {data!r}")
    return config


def significant_settings(config: dict) -> dict:
    """A config without the settings that have fairseq's default values; it trains the same model.

    Configs that differ only in whether they spell out a default thus become equal. The section ``model``
    is unchanged: its defaults are those of the architecture.
    """
    kept = {}
    for section, settings in config.items():
        default = _default_section(section, settings) if section in SECTIONS and section != "model" else None
        if default is None or not isinstance(settings, dict):
            kept[section] = settings
            continue
        kept[section] = {
            key: value
            for key, value in settings.items()
            if key == "_name" or not hasattr(default, key) or getattr(default, key) != value
        }
    return kept


def worker_overrides(config: dict) -> list[str]:
    """Additional settings for distributed training, in hydra's grammar."""
    overrides = [f"++checkpoint.{READ_BY_EACH}=true"]
    distributed = config.get("distributed_training") or {}
    if distributed.get("distributed_init_method") is None:
        cpu = bool((config.get("common") or {}).get("cpu"))
        settings = launched_workers(distributed.get("ddp_backend", "pytorch_ddp"), cpu)
        overrides += [f"++distributed_training.{name}='{value}'" for name, value in settings.items()]
    return overrides


def _compose(path: Path, overrides: list[str]) -> dict:
    """Compose the config as hydra does."""
    try:
        from hydra import compose, initialize_config_dir
    except ImportError:
        raise UserError(
            f"configs need hydra 1.2 or later, not {hydra.__version__}, which fairseq 0.12.2 comes with; "
            "train with fairseq-train, or install the fairseq of requirements.txt"
        ) from None
    if not path.is_file():
        prepare = " ".join(command_words("prepare", "prepare"))
        raise UserError(
            f"no config {path}; the repository's are in its configs/, "
            f"and {prepare} CORPUS --config writes those of a corpus"
        )
    if path.suffix != ".yaml" or path.stem == "config":
        raise UserError(f"{path}: the name must end in .yaml, and config.yaml is reserved by fairseq")
    _check_defaults(path)
    logging.getLogger("hydra").setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about hydra versions
            with initialize_config_dir(str(path.parent)):
                config = compose(path.stem, overrides)
        return OmegaConf.to_container(config, resolve=True)
    except (
        HydraException,
        OmegaConfBaseException,
        YAMLError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None


def _check_defaults(path: Path) -> None:
    """Validate a config's defaults list, such as our configs' ``base.yaml``.

    fairseq merges the config into its own defaults: these override files that precede ``_self_`` in the
    defaults list, while files that follow it override the config's settings.

    Raises:
        UserError: a file is missing, or the effective settings would differ from those written.
    """
    values, beside = _sections(path), _beside(path)
    if beside and values["defaults"][0] != "_self_":
        raise UserError(
            f"{path}: defaults must begin with _self_; otherwise fairseq's own defaults override what "
            f"{beside[0]} sets"
        )
    for file in beside:
        if not file.is_file():
            raise UserError(f"{path}: its defaults name {file.stem}, but {file} does not exist")
        shared = _sections(file)
        for section, settings in values.items():
            for key in settings if isinstance(settings, dict) else ():
                if isinstance(shared.get(section), dict) and key in shared[section]:
                    raise UserError(
                        f"{path}: {section}.{key} is set in {file} too, which would override it; set it in "
                        f"one of the two, or on the command line ({section}.{key}=VALUE)"
                    )


def _sections(path: Path) -> dict:
    """The sections of a YAML file, before composition."""
    values, _ = read_yaml(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} must have sections such as task, model and optimization")
    return values


def _beside(path: Path) -> list[Path]:
    """The files in a config's folder that its defaults list names."""
    defaults = _sections(path).get("defaults")
    names = defaults if isinstance(defaults, list) else []
    names = [name for name in names if isinstance(name, str) and re.fullmatch(r"\w[\w.-]{,99}", name)]
    return [path.with_name(f"{name.removesuffix('.yaml')}.yaml") for name in names if name != "_self_"]


def _place(path: Path, section: str, key: str | None = None, value=None) -> str:
    """The file, and the line, that sets a setting to this value; the config's name if none does."""
    for file in [path, *_beside(path)]:
        values, node = read_yaml(file)
        settings = values.get(section) if isinstance(values, dict) else None
        known = isinstance(settings, dict) and key in settings and settings[key] == value
        if known or (key is None and section in (values or {})):
            return line_of(file, node, (section,) if key is None else (section, key))
    return str(path)


def _checked_section(path: Path, section: str, settings):
    """The settings of a section, converted to their types.

    Raises:
        UserError: fairseq has no such setting, or its value is of another type.
    """
    name = settings.get("_name") if isinstance(settings, dict) else None
    types = setting_types(section, name)
    if types is None:
        return settings
    if not isinstance(settings, dict):
        raise UserError(f"{path}: {section} must be a mapping of settings, not {settings!r}")
    default = section_dataclass(section, name)
    schema = None if default is None else OmegaConf.structured(default)
    checked = dict(settings)
    for key, value in settings.items():
        if key == "_name":
            continue
        try:
            if key not in types:
                where = _place(path, section, key, value)
                close = difflib.get_close_matches(str(key), types, n=1)
                meant = f"; did you mean {section}.{close[0]}?" if close else ""
                raise UserError(f"{where}: unknown setting {section}.{key} of {name or section}{meant}")
            if types[key] is not None:  # first, because it tells more than OmegaConf
                checked[key] = types[key](value)
            if schema is not None:
                OmegaConf.merge(schema, {key: value})
        except OmegaConfBaseException as error:
            reason = str(error).split("\n")[0]
            where = _place(path, section, key, value)
            raise UserError(f"{where}: {section}.{key} cannot be {value!r}: {reason}") from None
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{_place(path, section, key, value)}: {section}.{key} {error}") from None
    return checked


def _types(section: str, settings) -> dict:
    """The types of what a section may set; empty if it is not known."""
    return setting_types(section, settings.get("_name") if isinstance(settings, dict) else None) or {}


def _default_section(section: str, settings):
    """fairseq's dataclass of a section with all defaults, or None."""
    return section_dataclass(section, settings.get("_name") if isinstance(settings, dict) else None)


def _check_model(path: Path, model) -> None:
    name = model.get("_name") if isinstance(model, dict) else None
    if not isinstance(name, str) or name not in ARCH_MODEL_REGISTRY:
        ours = ", ".join(arch for arch in ARCH_MODEL_REGISTRY if arch.startswith("adaptively_sparse"))
        raise UserError(
            f"{path}: model._name is {name!r}, which is not an architecture; this plugin has {ours}"
        )
    ARCH_CONFIG_REGISTRY[name](argparse.Namespace(**model))


# Files and folders that a training writes to.
OUTPUTS = (
    ("checkpoint", "save_dir"),
    ("common", "log_file"),
    ("common", "tensorboard_logdir"),
    ("model", "alpha_log"),
)
_FOLDERS = ("save_dir", "tensorboard_logdir")


def _check_outputs(path: Path, config: dict, root: Path) -> None:
    """Check early, because hydra writes its log there before fairseq checks the folder."""
    for section, key in OUTPUTS:
        settings = config.get(section) or {}
        value = settings.get(key, "checkpoints" if key == "save_dir" else None)
        if value is None:
            continue
        if not str(value):
            raise UserError(f"{path}: {section}.{key} is empty; give a name, or null for the default")
        output = root / str(value)
        try:
            check_output(output / "file" if key in _FOLDERS else output)
        except UserError as error:
            raise UserError(f"{path}: {section}.{key} is {value}: {error}") from None


def _check_seed(path: Path, config: dict) -> None:
    seed = (config.get("common") or {}).get("seed", 1)
    if not 0 <= seed < 2**32:
        raise UserError(f"{path}: common.seed is {seed}; numpy takes 0 to {2**32 - 1}")


def data_folders(data: str, root: Path) -> list[str]:
    """The folders that ``task.data`` names, separated by colons, unless the whole is one folder."""
    return [data] if os.path.isdir(root / data) else data.split(":")


def _check_data(path: Path, data: str, root: Path) -> None:
    for folder in data_folders(data, root):
        if not folder or not os.path.isdir(root / folder):  # also where the name is too long
            raise UserError(
                f"{path}: no binarised data in {root / folder}; "
                f"prepare the corpus first: {' '.join(command_words('prepare', 'prepare'))} --help"
            )


def _check_binarised(config: dict, root: Path) -> None:
    """Check training and validation data if they have the format of the translation task."""
    task, dataset = config["task"], config.get("dataset") or {}
    languages = task.get("source_lang"), task.get("target_lang")
    if task.get("_name") not in _PAIRS or task.get("dataset_impl") or None in languages:
        return
    folder = root / data_folders(task["data"], root)[0]
    subsets = dataset.get("train_subset", "train"), *dataset.get("valid_subset", "valid").split(",")
    for subset in subsets:
        check_split(folder, subset, languages)
