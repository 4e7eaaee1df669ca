"""``--patience`` counts on through interruptions, and by whatever metric."""

from __future__ import annotations

import pytest
from commands import train

from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow

# An epoch is one update, which leaves the model as it is: no validation is better than the first.
FLAGS = ["--train-subset", "valid", "--lr", "1e-30", "--patience", "3", "--no-epoch-checkpoints"]


def epochs(folder) -> int:
    return load_checkpoint(folder / "checkpoint_last.pt")["extra_state"]["train_iterator"]["epoch"] - 1


def test_patience_counts_on_after_an_interruption(small, tmp_path):
    def run(max_epoch):
        done = train(small, tmp_path, *FLAGS, "--max-epoch", max_epoch)
        return done.stdout + done.stderr

    run(2)
    assert epochs(tmp_path) == 2
    said = run(10)
    assert "valid performance hasn't improved for last 3 runs" in said
    assert epochs(tmp_path) == 4, "the first validation, then three that are no better"

    assert "nothing to train: loss has not improved for 3 validations, and --patience is 3" in run(10)
    assert epochs(tmp_path) == 4
    run_on = train(small, tmp_path, *FLAGS, "--patience", "5", "--max-epoch", "10")
    assert "for last 5 runs" in run_on.stdout + run_on.stderr
    assert epochs(tmp_path) == 6
