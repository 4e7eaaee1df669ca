"""A corpus is prepared again with other pieces, as many as before: old checkpoints are refused everywhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from commands import PLUGIN, fairseq, lines, of, refused, script, train_flags
from forks import NIGHTLY

pytestmark = pytest.mark.slow
UPDATES = ["--disable-validation", "--max-update"]


@pytest.fixture(scope="module")
def prepared_again(small, corpus, once) -> Path:
    """A folder with a model, ``model.pt``, and the corpus ``mine`` with other pieces than in its training."""

    def fill(folder):
        mine = Path(shutil.copytree(small, folder / "data" / "mine"))
        fairseq("train", *train_flags(mine, folder, *UPDATES, "2", "--no-epoch-checkpoints"))
        script("evaluate", *of(folder / "checkpoint_last.pt", mine), "--cpu", "--subset", "exam")
        pieces = (mine / "spm.model").read_bytes()
        raw = Path(shutil.copytree(small.parents[1] / "raw", folder / "raw"))
        for language in ("de", "en"):
            text = lines(corpus / "text" / f"train.{language}")[700:1300]
            (raw / f"train.{language}").write_text("\n".join(text) + "\n")
        script("prepare", "mine", "--raw", raw, "--data", mine.parent, "--force")
        assert (mine / "spm.model").read_bytes() != pieces

    return once("prepared_again", fill)


def test_every_script_refuses_the_old_checkpoint(prepared_again, tmp_path):
    model = of(prepared_again / "checkpoint_last.pt", prepared_again / "data" / "mine")
    commands = {
        "evaluate": ["--subset", "exam", "--output", tmp_path / "evaluation"],
        "translate": ["Guten Morgen."],
    }
    for name, flags in commands.items():
        done = script(name, *model, *flags, check=False)
        refused(done, "checkpoint_last.pt", "dict.de.txt", "fingerprint")
    assert not list(tmp_path.iterdir())


def test_every_command_of_fairseq_refuses_the_old_checkpoint(prepared_again, tmp_path):
    last, data = prepared_again / "checkpoint_last.pt", prepared_again / "data" / "mine"
    common = [data / "bin", *PLUGIN, "--path", last, "--cpu", "--num-workers", "0"]
    commands, flags = [("generate", *common, "--gen-subset", "test")], ["--restore-file"]
    if NIGHTLY in os.environ:
        commands += [("interactive", *common)]
        commands += [("validate", *common, "--task", "translation", "--max-tokens", "1000")]
        flags += ["--finetune-from-model", "--continue-once"]
    for flag in flags:
        commands.append(("train", *train_flags(data, tmp_path, flag, last, *UPDATES, "4")))
    shutil.copy(last, tmp_path / "checkpoint_last.pt")
    commands.append(("train", *train_flags(data, tmp_path, *UPDATES, "4")))
    for name, *flags in commands:
        done = fairseq(name, *flags, check=False)
        refused(done, "checkpoint_last.pt", "dict.de.txt", "fingerprint")
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == last.read_bytes()


def test_pieces_alone_differ(small, prepared_again, tmp_path):
    """The same dictionaries, as where only the merges of the pieces have another order."""
    mine = Path(shutil.copytree(small, tmp_path / "data" / "mine"))
    shutil.copy(prepared_again / "checkpoint_last.pt", tmp_path)
    with (mine / "spm.model").open("ab") as file:
        file.write(b"\x0a\x00")  # an empty piece, in protobuf
    done = fairseq("train", *train_flags(mine, tmp_path, *UPDATES, "4"), check=False)
    refused(done, "checkpoint_last.pt", "spm.model", "fingerprint")
    (mine / "spm.model").unlink()  # without them, dictionaries are compared alone
    fairseq("train", *train_flags(mine, tmp_path, *UPDATES, "4"))
