"""Hostile and corrupt checkpoints with every kind of command that reads one, in this process."""

from __future__ import annotations

import importlib
import io
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from commands import TINY, TRAINING, of
from helpers import Disguised, Runs, each_once

from user_dir.checkpoints import load_checkpoint
from user_dir.models import AdaptivelySparseTransformerModel

pytestmark = pytest.mark.slow


HOSTILE = ("pickle.pt", "setting.pt", "attributes.pt")


@pytest.fixture(scope="module")
def hostile(trained, tmp_path_factory):
    """A folder of checkpoints that would create a file when unpickled or when fairseq builds their model."""
    tmp_path = tmp_path_factory.mktemp("hostile")
    marker = tmp_path / "marker"
    state = load_checkpoint(trained / "checkpoint_last.pt")
    torch.save({**state, "last_optimizer_state": Runs(open, str(marker), "w")}, tmp_path / "pickle.pt")
    settings = dict(state["cfg"]["model"])
    state["cfg"]["model"] = {**settings, "adaptive_softmax_cutoff": f"open({str(marker)!r}, 'w') and None"}
    torch.save(state, tmp_path / "setting.pt")
    state["cfg"]["model"] = Disguised(settings)
    code = f"[open({str(marker)!r}, 'w') and (8, 3)][:0] or [(8, 3)]"
    vars(state["cfg"]["model"]).update(_name="fconv", encoder_layers=code)
    torch.save(state, tmp_path / "attributes.pt")
    return tmp_path


def fairseq(name: str, *words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *map(str, words)])
        patch.setattr(sys, "stdin", io.StringIO("Der Hund schläft.\n"))
        importlib.import_module(f"fairseq_cli.{name}").cli_main()


def script(name: str, *words):
    importlib.import_module(f"user_dir.commands.{name}").main([str(word) for word in words])


def training(corpus: Path, new: Path, *flags):
    data = [corpus / "bin", "--source-lang", "de", "--target-lang", "en", "--save-dir", new]
    arch = ["--arch", "adaptively_sparse_transformer", *TINY, *TRAINING, "--max-update", 1]
    fairseq("train", *data, *arch, *flags)


def resuming(corpus: Path, new: Path, checkpoint: Path):
    new.mkdir()
    (new / "checkpoint_last.pt").write_bytes(checkpoint.read_bytes())
    training(corpus, new)


def pretrained(checkpoint: Path, corpus: Path):
    folder, data = str(checkpoint.parent), str(corpus / "bin")
    AdaptivelySparseTransformerModel.from_pretrained(folder, checkpoint.name, data)


# By name: functions of a checkpoint, the corpus and a new folder.
READERS = {
    "train --restore-file": lambda pt, corpus, new: training(corpus, new, "--restore-file", pt),
    "train --finetune-from-model": lambda pt, corpus, new: training(corpus, new, "--finetune-from-model", pt),
    "train, resuming": lambda pt, corpus, new: resuming(corpus, new, pt),
    "generate": lambda pt, corpus, new: fairseq("generate", corpus / "bin", "--path", pt),
    "interactive": lambda pt, corpus, new: fairseq("interactive", corpus / "bin", "--path", pt),
    "validate": lambda pt, corpus, new: fairseq(
        "validate", corpus / "bin", "--path", pt, "--task", "translation", "--max-tokens", 500
    ),
    "from_pretrained": lambda pt, corpus, new: pretrained(pt, corpus),
    "evaluate": lambda pt, corpus, new: script("evaluate", *of(pt, corpus), "--output", new),
    "average": lambda pt, corpus, new: script("average", "--path", pt, "--output", new),
}


def ended(reader: str, *words) -> str:
    """The error message that a command ends with."""
    with pytest.raises(SystemExit) as caught:
        READERS[reader](*words)
    assert str(caught.value.code).startswith("error: "), caught.value.code
    return caught.value.code


@pytest.mark.parametrize("case", each_once(reader=list(READERS), name=HOSTILE))
def test_what_would_run_code_is_refused_and_runs_nothing(case, hostile, corpus, tmp_path):
    checkpoint = hostile / case["name"]
    said = ended(case["reader"], checkpoint, corpus, tmp_path / "new")
    assert "is refused" in said and (checkpoint.name in said or "checkpoint_last.pt" in said)
    assert not (hostile / "marker").exists()


WRONG = {
    "nan": ("wrong.pt", "decoder.layers.1.fc2.weight", "not finite"),
    "cut": ("wrong.pt", "not a checkpoint"),
    "layers": ("does not fit this model", "decoder.layers.2."),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_unusable_checkpoint_is_reported(wrong, corpus, trained, tmp_path):
    path, state = tmp_path / "wrong.pt", load_checkpoint(trained / "checkpoint_last.pt")
    if wrong == "nan":
        state["model"]["decoder.layers.1.fc2.weight"][3, 4] = torch.nan
    elif wrong == "layers":
        state["cfg"]["model"] = Namespace(**{**state["cfg"]["model"], "decoder_layers": 3})
    torch.save(state, path)
    if wrong == "cut":
        path.write_bytes(path.read_bytes()[:-1000])
    for reader in ("evaluate", "generate" if wrong == "layers" else "average"):
        said = ended(reader, path, corpus, tmp_path / "new")
        assert all(word in said for word in WRONG[wrong]), (reader, said)
    assert not (tmp_path / "new").exists()
