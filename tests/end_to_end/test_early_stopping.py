"""``--patience`` counts on through interruptions, and by whatever metric."""

from __future__ import annotations

import re

import pytest
from commands import train

pytestmark = pytest.mark.slow

# An epoch is one update, which leaves the model as it is: no validation is better than the first.
FLAGS = ["--train-subset", "test", "--lr", "1e-30", "--patience", "3", "--no-epoch-checkpoints"]


@pytest.mark.nightly
def test_patience_counts_on_after_an_interruption(small, tmp_path):
    def run(*flags):
        """How many validations a training makes, and what it says."""
        done = train(small, tmp_path, *FLAGS, *flags)
        said = done.stdout + done.stderr
        return len(re.findall(r"epoch \d+ \| valid on", said)), said

    assert run("--max-epoch", "2")[0] == 2
    validations, said = run("--max-epoch", "20")
    assert validations == 2, "the first was the best; with these, three are no better"
    assert "hasn't improved for last 3 runs" in said

    validations, said = run("--max-epoch", "20")
    assert validations == 0
    assert "nothing to train: loss has not improved for 3 validations" in said
