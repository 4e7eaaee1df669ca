"""Training configs: what can be wrong with one is said before fairseq starts."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import yaml
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .errors import UserError

SECTIONS = tuple(field.name for field in fields(FairseqConfig) if not field.name.startswith("_"))


def check_config(path: Path, overrides: list[str], root: Path) -> None:
    """Check a fairseq-hydra-train config as far as can be done without data.

    Args:
        path: the YAML file.
        overrides: ``section.key=value`` settings that come on top of it.
        root: the folder that relative paths in it start from.

    Raises:
        UserError: naming the first thing that is wrong, and where.
    """
    config = _with_overrides(_read(path), overrides)
    for section in config:
        if section not in (*SECTIONS, "hydra", "defaults"):
            raise UserError(f"{path}: unknown section {section!r}; fairseq has {', '.join(SECTIONS)}")
    _check_model(path, config.get("model"))
    _check_data(path, config.get("task"), root)


def _read(path: Path) -> dict:
    if not path.is_file():
        raise UserError(f"no config {path}; the ones that come with the project are under configs/")
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} must hold sections such as task, model and optimization")
    return config


def _with_overrides(config: dict, overrides: list[str]) -> dict:
    for override in overrides:
        if "=" not in override:
            raise UserError(f"{override!r} is not of the form section.key=value")
    plain = [override.lstrip("+") for override in overrides if not override.startswith("~")]
    try:
        merged = OmegaConf.merge(OmegaConf.create(config), OmegaConf.from_dotlist(plain))
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise UserError(f"cannot apply {' '.join(overrides)}: {' '.join(str(error).split())}") from None
    return OmegaConf.to_container(merged, resolve=False)


def _check_model(path: Path, model) -> None:
    name = model.get("_name") if isinstance(model, dict) else None
    if name not in ARCH_MODEL_REGISTRY:
        ours = ", ".join(arch for arch in ARCH_MODEL_REGISTRY if arch.startswith("adaptively_sparse"))
        raise UserError(f"{path}: model._name is {name!r}, which is no architecture; this plugin has {ours}")
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    if hasattr(ARCH_MODEL_REGISTRY[name], "add_args"):
        ARCH_MODEL_REGISTRY[name].add_args(parser)
    known = {action.dest for action in parser._actions}
    for key in model:
        if key != "_name" and key not in known:
            raise UserError(f"{path}: unknown setting model.{key} of {name}")
    ARCH_CONFIG_REGISTRY[name](argparse.Namespace(**model))


def _check_data(path: Path, task, root: Path) -> None:
    data = task.get("data") if isinstance(task, dict) else None
    if not isinstance(data, str):
        raise UserError(f"{path}: task.data must name the folder of the binarised corpus, not {data!r}")
    for folder in data.split(":"):
        if not (root / folder).is_dir():
            raise UserError(
                f"{path}: no binarised data in {root / folder}; "
                "prepare the corpus first: python scripts/prepare.py --help"
            )
