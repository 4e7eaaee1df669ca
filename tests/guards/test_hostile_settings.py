"""Settings that fairseq evaluates, or that name files: all are known, and files give way to defaults."""

import ast
import os
import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import fairseq
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from helpers import checkpoint_state, parse
from omegaconf import OmegaConf

from user_dir.guards.hostile_settings import EVALUATED, FILES, without_files
from user_dir.sections import section_flags

EVIL = "/evil/path"


def nodes(*words: str) -> Iterator[tuple[str, ast.AST]]:
    """The syntax of those files of the package fairseq in which one of the words is, with their names."""
    root = Path(fairseq.__file__).parent
    for file in root.rglob("*.py"):
        name, text = file.relative_to(root), file.read_text(encoding="utf-8")
        if name.parts[0] != "examples" and any(word in text for word in words):  # not part of the package
            for node in ast.walk(ast.parse(text)):
                yield name.as_posix(), node


def test_settings_that_fairseq_evaluates_are_all_known():
    """Found in fairseq's source: what is passed to eval, or to what passes it on to eval."""
    evaluators = {"exec", "eval_str_list", "eval_str_dict", "eval_bool"}
    found = {}
    for file, node in nodes("eval(", *(f"{name}(" for name in evaluators)):
        function = getattr(node, "func", None)
        method = getattr(function, "attr", None) in evaluators  # .eval() is torch's
        if (method or getattr(function, "id", None) in {"eval", *evaluators}) and node.args:
            argument = node.args[0]
            setting = argument.attr if isinstance(argument, ast.Attribute) else ast.unparse(argument)
            found.setdefault(setting, set()).add(file)
    assert len(found) > 20, "the search finds nothing"
    evaluate = {"utils.py", "dataclass/utils.py", "models/lightconv.py", "models/lightconv_lm.py"}
    assert {setting: files for setting, files in found.items() if setting not in EVALUATED} == {
        "x": evaluate,  # evaluators, flags
        "uf": {"data/multilingual/multilingual_data_manager.py"},  # flags of the command line
        "line.strip()": {"data/codedataset.py"},  # a line of data of the task for spoken dialogue
    }


def test_names_of_files_among_fairseqs_settings_are_all_known():
    """Found in fairseq's source: flags and fields that say that they are a path, a file or a folder."""
    says = re.compile(r"\b(path|paths|file|folder|directory|dir|filename)\b", re.I)
    found = set()
    for _, node in nodes("add_argument(", "metadata"):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text, names = ast.unparse(node), [node.target.id]
            fits = "metadata" in text and re.search(r"\bstr\b|Any", ast.unparse(node.annotation))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            text = ast.unparse(node)
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            names = [word.lstrip("-").replace("-", "_") for word in words if word.startswith("--")]
            fits = "store_" not in text and "type=int" not in text and "type=float" not in text
        else:
            continue
        if fits and says.search(text.replace("_", " ")):
            found.update(names)
    assert len(found) > 40, "the search finds nothing"
    # Endings of names in the data folder, words and switches.
    no_files = "aim_run_hash align_suffix arch best_checkpoint_metric channels checkpoint_suffix data labels"
    no_files += " langs mcd_normalize_type"
    assert found - FILES - {*no_files.split()} == set()


@pytest.mark.parametrize("form", ["dict", "namespace", "args"])
def test_files_that_a_checkpoint_names_are_not_followed(tmp_path, form):
    names = sorted(FILES | {"data"})
    os.mkfifo(tmp_path / "pipe")  # whoever opens it waits for ever
    made = {"_name": "transformer", "arch": "transformer", "task": "translation"}
    made.update(dict.fromkeys(names, str(tmp_path / "pipe")), source_lang="de", target_lang="en")
    hostile = checkpoint_state(made)
    if form == "namespace":
        hostile["cfg"]["model"] = Namespace(**made)
    elif form == "args":
        hostile.update(cfg=None, args=Namespace(**made))
    torch.save(hostile, tmp_path / "a.pt")

    def loaded(overrides=None):
        read = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "a.pt"), overrides)
        return read["args"] if form == "args" else read["cfg"]["model"]

    assert "pipe" not in str(loaded())
    given = loaded(dict.fromkeys(names, "given"))
    assert {getattr(given, name) for name in names} == {"given"}


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
    for name in given:
        assert cleaned[name] == without[name]
