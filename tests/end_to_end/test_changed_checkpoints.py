"""Training goes on unmoved when the checkpoint that it began with is overwritten, cut short and removed."""

from __future__ import annotations

import os

import pytest
from commands import fairseq, forks, train_flags, wait_for_line
from same_training import assert_same_training

pytestmark = pytest.mark.slow
FLAGS = ["--disable-validation", "--no-epoch-checkpoints", "--alpha-log-interval", "1"]
FLAGS += ["--store-ema", "--ema-decay", "0.9", "--max-tokens", "300"]
WAYS = ["checkpoint_last.pt"]  # the others are read by the same function
OTHERS = ("--restore-file", "--finetune-from-model", "--continue-once")
WAYS += [pytest.param(way, marks=pytest.mark.nightly) for way in OTHERS]


@pytest.fixture(scope="module")
def begun(corpus, once):
    """A checkpoint after 5 updates, and another after 4 with another seed."""

    def fill(folder):
        for name, more in (("begun", ("--max-update", "5")), ("other", ("--max-update", "4", "--seed", "9"))):
            fairseq("train", *train_flags(corpus, folder / name, *FLAGS, *more))

    return once("begun", fill)


@pytest.mark.parametrize("way", WAYS)
def test_a_training_that_goes_on_does_not_depend_on_its_checkpoint(corpus, begun, tmp_path, way):
    original, other = (begun / name / "checkpoint_last.pt" for name in ("begun", "other"))
    for name in ("alone", "disturbed"):
        folder = tmp_path / name
        folder.mkdir()
        path = folder / ("checkpoint_last.pt" if way == "checkpoint_last.pt" else "mine.pt")
        path.write_bytes(original.read_bytes())
        log, program = folder / "alpha.jsonl", forks()
        flags = [] if way == "checkpoint_last.pt" else [way, path]
        flags += ["--alpha-log", log, "--max-update", "40"]
        program.start("-m", "fairseq_cli.train", *train_flags(corpus, folder, *FLAGS, *flags))
        if name == "disturbed":
            wait_for_line(program, log)
            wait_for_line(program, log)
            with path.open("r+b") as file:  # in place, as cp does
                file.write(other.read_bytes())
            wait_for_line(program, log)
            os.truncate(path, 0)
            wait_for_line(program, log)
            path.unlink()
            wait_for_line(program, log)
        done = program.finish()
        assert done.returncode == 0, done.stderr[-3000:]
    assert_same_training(tmp_path / "alone", tmp_path / "disturbed")
