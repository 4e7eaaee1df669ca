"""Hostile and corrupt checkpoints with every command that reads one, in this process."""

from __future__ import annotations

import copy
import importlib
import io
import os
import shutil
import sys
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import TINY, TRAINING, of
from helpers import each_once

from user_dir.checkpoints import load_checkpoint
from user_dir.models import AdaptivelySparseTransformerModel

pytestmark = pytest.mark.slow


class Runs:
    """An object that is pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Disguised(OrderedDict):
    """Pickled as an OrderedDict with the items of one model and the attributes of another."""

    def __reduce__(self):
        return OrderedDict, (), vars(self), None, iter(self.items())


HOSTILE = ("pickle.pt", "setting.pt", "attributes.pt")


@pytest.fixture(scope="module")
def hostile(trained, tmp_path_factory):
    """A folder of checkpoints that would create a file when unpickled or when fairseq builds their model."""
    tmp_path = tmp_path_factory.mktemp("hostile")
    marker = tmp_path / "marker"
    state = load_checkpoint(trained / "checkpoint_last.pt")
    torch.save({**state, "last_optimizer_state": Runs(open, str(marker), "w")}, tmp_path / "pickle.pt")
    state["cfg"]["model"] = copy.copy(state["cfg"]["model"])
    state["cfg"]["model"].adaptive_softmax_cutoff = f"open({str(marker)!r}, 'w') and None"
    torch.save(state, tmp_path / "setting.pt")
    state["cfg"]["model"] = Disguised(vars(load_checkpoint(trained / "checkpoint_last.pt")["cfg"]["model"]))
    code = f"[open({str(marker)!r}, 'w') and (8, 3)][:0] or [(8, 3)]"
    vars(state["cfg"]["model"]).update(_name="fconv", encoder_layers=code)
    torch.save(state, tmp_path / "attributes.pt")
    return tmp_path


def fairseq(name: str):
    def command(*words):
        module = importlib.import_module(f"fairseq_cli.{name}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [name, *map(str, words)])
            patch.setattr(sys, "stdin", io.StringIO("Der Hund schläft.\n"))
            module.cli_main()

    return command


def script(name: str):
    def command(*words):
        importlib.import_module(f"user_dir.commands.{name}").main([str(word) for word in words])

    return command


def ended(command, *words) -> str:
    """The error message that a command ends with."""
    with pytest.raises(SystemExit) as caught:
        command(*words)
    assert str(caught.value.code).startswith("error: "), caught.value.code
    return caught.value.code


# By name: functions of a checkpoint, the corpus and a new folder to the command and its arguments.
READERS = {
    "train --restore-file": lambda pt, corpus, new: training(corpus, new, "--restore-file", pt),
    "train --finetune-from-model": lambda pt, corpus, new: training(corpus, new, "--finetune-from-model", pt),
    "train": lambda pt, corpus, new: training(corpus, new),
    "train, resuming": lambda pt, corpus, new: training(corpus, resumed(pt, new)),
    "generate": lambda pt, corpus, new: by_fairseq("generate", corpus, pt),
    "generate --lm-path": lambda pt, corpus, new: by_fairseq("generate", corpus, good(pt), "--lm-path", pt),
    "interactive": lambda pt, corpus, new: by_fairseq("interactive", corpus, pt),
    "validate": lambda pt, corpus, new: by_fairseq(
        "validate", corpus, pt, "--task", "translation", "--max-tokens", 500
    ),
    "from_pretrained": lambda pt, corpus, new: (
        *(AdaptivelySparseTransformerModel.from_pretrained, str(pt.parent), pt.name, str(corpus / "bin")),
    ),
    "evaluate": lambda pt, corpus, new: (script("evaluate"), *of(pt, corpus), "--output", new),
    "dump_alphas": lambda pt, corpus, new: (script("dump_alphas"), "--path", pt),
    "dump_alphas of a folder": lambda pt, corpus, new: (script("dump_alphas"), "--path", resumed(pt, new)),
}
for name in ("head_stats", "head_importance", "align", "report"):
    READERS[name] = lambda pt, corpus, new, name=name: (script(name), *of(pt, corpus))
for name in ("average_checkpoints", "convert_checkpoint"):
    READERS[name] = lambda pt, corpus, new, name=name: (script(name), "--path", pt, "--output", new)


def by_fairseq(name: str, corpus: Path, checkpoint: Path, *flags):
    return fairseq(name), corpus / "bin", "--path", checkpoint, *flags


def training(corpus, new, *flags):
    data = [corpus / "bin", "--source-lang", "de", "--target-lang", "en", "--save-dir", new]
    arch = ["--arch", "adaptively_sparse_transformer", *TINY, *TRAINING, "--max-update", 1]
    return fairseq("train"), *data, *arch, *flags


def resumed(checkpoint: Path, new: Path) -> Path:
    new.mkdir()
    (new / "checkpoint_last.pt").write_bytes(checkpoint.read_bytes())
    return new


def good(checkpoint: Path) -> Path:
    return checkpoint.parent / "good.pt"


OF_CHECKPOINTS = [name for name in READERS if name != "train"]


@pytest.mark.parametrize("case", each_once(reader=OF_CHECKPOINTS, name=HOSTILE))
def test_what_would_run_code_is_refused_and_runs_nothing(case, hostile, corpus, trained, tmp_path):
    checkpoint = hostile / case["name"]
    good(checkpoint).write_bytes((trained / "checkpoint_last.pt").read_bytes())
    said = ended(*READERS[case["reader"]](checkpoint, corpus, tmp_path / "new"))
    assert "is refused: " in said and (checkpoint.name in said or "checkpoint_last.pt" in said)
    assert not (hostile / "marker").exists()


# Defects of checkpoints → the messages of fairseq-generate (None: fairseq's own) and of our commands.
WRONG = {
    "nan": ("not finite", "not finite"),
    "cut": ("cut short", "cut short"),
    "vocabulary": ("does not fit this model", "symbols, but toy is prepared with"),
    "layers": ("does not fit this model", "does not fit this model"),
    "lm": ("is a language model, which has no encoder", "not a fairseq translation model"),
    "list": ("not a checkpoint that fairseq wrote", "not a checkpoint that fairseq wrote"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_unusable_checkpoint_is_reported(wrong, corpus, trained, tmp_path):
    path, state = tmp_path / "wrong.pt", load_checkpoint(trained / "checkpoint_last.pt")
    model = state["model"]
    if wrong == "nan":
        model["decoder.layers.1.fc2.weight"][3, 4] = np.nan
    elif wrong == "vocabulary":
        for name in [name for name in model if "embed_tokens" in name or "output_projection" in name]:
            model[name] = torch.cat([model[name], model[name][:8]])
    elif wrong == "layers":
        state["cfg"]["model"] = Namespace(**{**vars(state["cfg"]["model"]), "decoder_layers": 3})
    elif wrong == "lm":
        state["cfg"]["model"] = Namespace(**{**vars(state["cfg"]["model"]), "_name": "transformer_lm"})
        state["model"] = {name: value for name, value in model.items() if name.startswith("decoder.")}
    torch.save([state] if wrong == "list" else state, path)
    if wrong == "cut":
        path.write_bytes(path.read_bytes()[:-1000])
    by_fairseq, by_us = WRONG[wrong]
    said = ended(*READERS["generate"](path, corpus, tmp_path))
    assert by_fairseq in said and (wrong != "lm" or path.name in said)
    readers = ["head_stats", "align", "report", "evaluate"]
    readers += ["average_checkpoints", "dump_alphas"] if wrong in ("nan", "cut", "list") else []
    for reader in readers:
        assert by_us in ended(*READERS[reader](path, corpus, tmp_path / "new")), reader
    assert not (tmp_path / "new").exists()


def test_corrupt_data_is_reported_before_anything_runs(corpus, trained, tmp_path):
    checkpoint = shutil.copy(trained / "checkpoint_last.pt", tmp_path)  # in a folder without a report
    data = tmp_path / "toy"
    shutil.copytree(corpus / "bin", data / "bin")
    (data / "text").symlink_to(corpus / "text")
    for name in ("valid.de-en.en.bin", "test.de-en.en.bin"):
        (data / "bin" / name).write_bytes(b"\0")
    for reader in ("head_stats", "head_importance", "align", "report", "evaluate"):
        said = ended(*READERS[reader](checkpoint, data, tmp_path / "new"))
        assert "de-en.en.bin has 1 bytes, but" in said, reader
    (data / "bin" / "dict.de.txt").write_text("garbage\n")
    said = ended(*READERS["evaluate"](checkpoint, data, tmp_path / "new"))
    assert "dict.de.txt is not a fairseq dictionary" in said


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


# What is done to the split that a command reads, or to a dictionary → what is said.
BREAKS = {
    "a pipe for the index": ("idx", a_pipe, "is a pipe or a device, not a file"),
    "tokens cut short": ("bin", lambda path: os.truncate(path, 2), "has 2 bytes, but"),
    "no dictionary": ("dict", Path.unlink, "there is no dictionary"),
}
COMMANDS = {"train": "train", "validate": "valid", "generate": "test", "interactive": None}


@pytest.mark.parametrize("broken", BREAKS)
def test_fairseqs_commands_say_which_data_is_broken(broken, corpus, trained, tmp_path):
    ending, change, message = BREAKS[broken]
    for command, subset in COMMANDS.items():
        if subset is None and ending != "dict":
            continue  # fairseq-interactive reads dictionaries alone
        data = tmp_path / command
        shutil.copytree(corpus / "bin", data / "bin")
        name = "dict.en.txt" if ending == "dict" else f"{subset}.de-en.en.{ending}"
        change(data / "bin" / name)
        said = ended(*READERS[command](trained / "checkpoint_last.pt", data, data / "new"))
        assert message in said and "prepare the corpus again" in said, (command, said)
        assert not list(data.glob("new/*.pt"))


def test_a_language_model_goes_to_its_own_flag(corpus, trained):
    """A translation model in its place; fairseq would call it without a source."""
    path = trained / "checkpoint_last.pt"
    words = [corpus / "bin", "--path", path, "--lm-path", path, "--gen-subset", "valid"]
    assert "--lm-path must name a language model" in ended(fairseq("generate"), *words)
