"""Training goes on unmoved when the checkpoint that it began with is overwritten, cut short and removed."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from commands import forks, train_flags
from test_kills import same, wait_for_line

from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow
UPDATES = ["--disable-validation", "--no-epoch-checkpoints", "--alpha-log-interval", "1"]
UPDATES += ["--store-ema", "--ema-decay", "0.9"]
WAYS = ("--restore-file", "checkpoint_last.pt", "--finetune-from-model", "--continue-once")


@pytest.fixture(scope="module")
def begun(corpus, once):
    """A checkpoint after 5 updates, and another after 4 with another seed."""

    def fill(folder):
        for name, more in (("begun", ("--max-update", "5")), ("other", ("--max-update", "4", "--seed", "9"))):
            flags = train_flags(corpus, folder / name, *UPDATES, *more)
            assert forks().run("-m", "fairseq_cli.train", *flags).returncode == 0

    return once("begun", fill)


@pytest.mark.parametrize("way", WAYS)
def test_a_training_that_goes_on_does_not_depend_on_its_checkpoint(corpus, begun, tmp_path, way):
    folders, states, original = (tmp_path / "alone", tmp_path / "disturbed"), [], begun / "begun"
    for folder in folders:
        folder.mkdir()
        path = folder / "checkpoint_last.pt" if way == "checkpoint_last.pt" else folder / "mine.pt"
        path.write_bytes((original / "checkpoint_last.pt").read_bytes())
        log = folder / "alpha.jsonl"
        flags = [] if way == "checkpoint_last.pt" else [way, path]
        flags += ["--alpha-log", log, "--max-update", "40"]
        program = forks()
        program.start("-m", "fairseq_cli.train", *train_flags(corpus, folder, *UPDATES, *flags))
        if folder is folders[1]:
            wait_for_line(program, log)
            wait_for_line(program, log)
            with path.open("r+b") as file:  # in place, as cp does
                file.write((begun / "other" / "checkpoint_last.pt").read_bytes())
            wait_for_line(program, log)
            os.truncate(path, 0)
            wait_for_line(program, log)
            path.unlink()
            wait_for_line(program, log)
        done = program.finish()
        assert done.returncode == 0, done.stderr[-3000:]
        states.append(load_checkpoint(folder / "checkpoint_last.pt", optimizer=True))
    for left, right in pairwise(states):
        assert same(left["model"], right["model"])
        assert same(left["last_optimizer_state"], right["last_optimizer_state"])
        assert same(left["extra_state"]["ema"], right["extra_state"]["ema"])
    assert (folders[0] / "alpha.jsonl").read_text() == (folders[1] / "alpha.jsonl").read_text()
