"""A command that was stopped, and is repeated, ends as if it never was, however its training begins."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from commands import fairseq, forks, read_alpha_log, refused, train_flags
from recorded import RECORDER
from same_training import assert_same_training, same_flags

from user_dir.checkpoints import load_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
LONG = ["--disable-validation", "--save-interval-updates", "4", "--keep-interval-updates", "1"]
LONG += ["--max-tokens", "300"]
RESETS = ["--reset-optimizer", "--reset-lr-scheduler", "--reset-meters", "--reset-dataloader"]
COMMANDS = {
    "restore": ["--restore-file", "FILE"],
    "restored and reset": ["--restore-file", "FILE", *RESETS],
    "continued and reset": ["--continue-once", "FILE", "--reset-optimizer"],
    "fine-tuned": ["--finetune-from-model", "FILE"],
    "reset alone": ["--reset-optimizer", "--reset-meters"],
}


@pytest.fixture(scope="module")
def begun(corpus, once) -> Path:
    """A checkpoint after 6 updates."""
    flags = ["--disable-validation", "--no-epoch-checkpoints", "--max-tokens", "300", "--max-update", "6"]
    folder = once("six_updates", lambda folder: fairseq("train", *train_flags(corpus, folder, *flags)))
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize("way", COMMANDS)
def test_killed_and_repeated(corpus, begun, tmp_path, monkeypatch, way):
    through, killed = tmp_path / "through", tmp_path / "killed"

    def flags(folder):
        words = [str(begun) if word == "FILE" else word for word in COMMANDS[way]]
        return same_flags(corpus, folder, *LONG, *words, "--max-update", "20")

    for folder in (through, killed):
        folder.mkdir()
        if way == "reset alone":  # of a training that is already there
            (folder / "checkpoint_last.pt").write_bytes(begun.read_bytes())
    fairseq("train", *flags(through))
    monkeypatch.setenv("KILLED_AT", "10")  # after the checkpoint of update 8
    done = forks().run(RECORDER, tmp_path / "seen.jsonl", 1, "fairseq_cli.train", *flags(killed))
    assert done.returncode == -signal.SIGKILL
    done = fairseq("train", *flags(killed))
    assert "which this command wrote" in done.stdout + done.stderr
    assert_same_training(through, killed)


def test_another_beginning_starts_there(corpus, begun, tmp_path):
    """Such as going back to an earlier checkpoint of the same folder."""
    flags = same_flags(corpus, tmp_path, "--disable-validation")
    fairseq("train", *flags, "--max-update", "3")
    fairseq("train", *flags, "--restore-file", begun, "--max-update", "8")
    assert [line["update"] for line in read_alpha_log(tmp_path / "alpha.jsonl")][-1] == 8
    # Without the flag the same training goes on, and with another file another one begins.
    fairseq("train", *flags, "--max-update", "9")
    other = tmp_path / "other.pt"
    other.write_bytes(begun.read_bytes())
    fairseq("train", *flags, "--restore-file", other, "--max-update", "7")
    last = load_checkpoint(tmp_path / "checkpoint_last.pt")
    assert last["optimizer_history"][-1]["num_updates"] == 7


def test_a_file_that_is_not_there_is_an_error(corpus, tmp_path):
    flags = same_flags(corpus, tmp_path, "--restore-file", tmp_path / "no.pt")
    done = fairseq("train", *flags, check=False)
    refused(done, "there is no file", "no.pt")


def test_the_last_checkpoint_by_its_whole_name_may_not_be_there_yet(corpus, tmp_path):
    """As in scripts that resume whatever is there."""
    flags = same_flags(
        corpus, tmp_path, "--restore-file", tmp_path / "checkpoint_last.pt", "--disable-validation"
    )
    fairseq("train", *flags, "--max-update", "2")
    fairseq("train", *flags, "--max-update", "4")
    assert [line["update"] for line in read_alpha_log(tmp_path / "alpha.jsonl")] == [0, 1, 2, 3, 4]
