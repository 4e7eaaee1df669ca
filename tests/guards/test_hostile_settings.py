"""Files that a checkpoint names are replaced by what fairseq takes without them, of the right type."""

from argparse import Namespace
from dataclasses import fields, is_dataclass

import pytest
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from helpers import parse
from omegaconf import OmegaConf

from user_dir.guards.hostile_settings import FILES, without_files
from user_dir.sections import section_flags

EVIL = "/evil/path"


def _declared() -> dict[str, tuple[str, str | None, type]]:
    """Every section of fairseq that a dataclass declares and that has files: section, name, dataclass."""
    found = {field.name: (field.name, None, field.type) for field in fields(FairseqConfig)}
    registries = {"task": TASK_DATACLASS_REGISTRY, "model": MODEL_DATACLASS_REGISTRY}
    registries |= {kind: registry["dataclass_registry"] for kind, registry in REGISTRIES.items()}
    for section, registry in registries.items():
        found |= {f"{section}: {name}": (section, name, made) for name, made in registry.items()}
    return {
        key: (section, name, made)
        for key, (section, name, made) in found.items()
        if is_dataclass(made) and {field.name for field in fields(made)} & FILES
    }


DECLARED = _declared()


@pytest.mark.parametrize("key", DECLARED)
def test_every_section_of_fairseq_takes_what_replaces_a_file(key):
    section, name, made = DECLARED[key]
    files = {field.name for field in fields(made)} & FILES
    settings = {"_name": name, **dict.fromkeys(files, EVIL)}
    (cleaned,) = without_files({"cfg": {section: settings}})["cfg"].values()
    del cleaned["_name"]
    merged = OmegaConf.merge(OmegaConf.structured(made()), cleaned)  # raises an error for a wrong type
    assert cleaned.keys() == files
    assert all(merged._get_node(name)._value() != EVIL for name in files)


def test_language_models_keep_the_folder_that_their_task_must_have():
    cfg = {"task": {"_name": "language_modeling", "plasma_path": EVIL, "data": EVIL}}
    assert without_files({"cfg": cfg})["cfg"]["task"]["plasma_path"] == "/tmp/plasma"


LEGACY = {
    name for name in TASK_REGISTRY if name not in TASK_DATACLASS_REGISTRY and section_flags("task", name)
}


@pytest.mark.parametrize("task", sorted(LEGACY))
def test_tasks_without_a_dataclass_get_the_defaults_of_their_flags(task):
    flags = section_flags("task", task)
    args = Namespace(task=task, arch="transformer", **dict.fromkeys({*FILES} & flags.keys(), EVIL))
    cleaned = vars(without_files({"args": args})["args"])
    for name in {*FILES} & flags.keys():
        assert cleaned[name] == flags[name].default


@pytest.mark.parametrize("arch", [name for name in ARCH_MODEL_REGISTRY if name.startswith("adaptively")])
def test_settings_of_our_models_by_flags_are_those_of_no_files(arch):
    without = vars(parse("", arch))
    given = dict.fromkeys({*FILES} & without.keys(), EVIL)
    cleaned = vars(without_files({"args": Namespace(**{**without, **given})})["args"])
    strings = {"save_dir": "checkpoints", "restore_file": "checkpoint_last.pt"}
    for name in given:
        assert cleaned[name] == strings.get(name, None if name in cleaned else EVIL)
