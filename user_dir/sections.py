"""The sections of fairseq's settings, such as ``task`` and ``model``: what is declared in each.

A section is declared by a dataclass or, in older parts of fairseq and in models such as ours, by the flags of
an argparse parser. ``common``, ``dataset`` and the like have one dataclass each; ``task``, ``model``,
``optimizer`` and the like name one of several under ``_name``.
"""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser
from dataclasses import fields, is_dataclass

from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import (
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
)
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

SECTIONS = tuple(field.name for field in fields(FairseqConfig) if not field.name.startswith("_"))


def section_dataclass(section: str, name=None):
    """The dataclass of one of ``SECTIONS`` with all defaults, or None if its ``_name`` has none."""
    default = getattr(FairseqConfig(), section)
    if is_dataclass(default):
        return default
    if not isinstance(name, str):
        return None
    made = _declared(section)[0].get(name)
    return None if made is None else made()


def section_flags(section: str, name=None) -> dict[str, Action] | None:
    """The flags of a section without a dataclass, by the name of the setting; None if there is no such."""
    if not isinstance(name, str):
        return None
    owner = _declared(section)[1].get(name)
    if not hasattr(owner, "add_args"):
        return None
    parser = ArgumentParser(argument_default=SUPPRESS, allow_abbrev=False, add_help=False)
    owner.add_args(parser)
    return {action.dest: action for action in parser._actions}


def architecture(settings) -> str | None:
    """The architecture that the section ``model``, or the flags of fairseq-train, name."""
    return getattr(settings, "_name", None) or getattr(settings, "arch", None)


def model_class(settings) -> type | None:
    """The class of that architecture, if there is one."""
    return _declared("model")[1].get(architecture(settings))


def _declared(section: str) -> tuple[dict, dict]:
    """The dataclasses, and the classes with flags, that a section may name."""
    if section == "task":
        return TASK_DATACLASS_REGISTRY, TASK_REGISTRY
    if section == "model":
        names = ARCH_MODEL_NAME_REGISTRY.items()
        by_arch = {arch: MODEL_DATACLASS_REGISTRY.get(name) for arch, name in names}
        return {**MODEL_DATACLASS_REGISTRY, **by_arch}, {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}
    registry = REGISTRIES.get(section, {})
    return registry.get("dataclass_registry", {}), registry.get("registry", {})
