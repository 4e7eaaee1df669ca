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
    """The dataclass of a section with all defaults, or None if it has none.

    Args:
        section: one of ``SECTIONS``.
        name: ``_name`` of the section, if it has one.
    """
    default = getattr(FairseqConfig(), section)
    if is_dataclass(default):
        return default
    if not isinstance(name, str):
        return None
    if section == "task":
        made = TASK_DATACLASS_REGISTRY.get(name)
    elif section == "model":
        made = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(name, name))
    else:
        made = REGISTRIES.get(section, {}).get("dataclass_registry", {}).get(name)
    return None if made is None else made()


def section_flags(section: str, name=None) -> dict[str, Action] | None:
    """The flags of a section that has no dataclass, by the name of the setting; None if there is no such."""
    if not isinstance(name, str):
        return None
    if section == "task":
        owner = TASK_REGISTRY.get(name)
    elif section == "model":
        owner = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    else:
        owner = REGISTRIES.get(section, {}).get("registry", {}).get(name)
    if not hasattr(owner, "add_args"):
        return None
    parser = ArgumentParser(argument_default=SUPPRESS, allow_abbrev=False, add_help=False)
    owner.add_args(parser)
    return {action.dest: action for action in parser._actions}
