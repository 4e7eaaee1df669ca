"""Training that is killed in each epoch; at each write: ``test_faults.py``."""

from __future__ import annotations

import itertools
import signal
import sys

import pytest
from commands import ROOT, forks, lines, run
from recorded import RECORDER, read_record
from same_training import assert_same_training, same_config, same_flags

from user_dir.checkpoints import load_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_in_each_epoch_a_training_sees_each_sentence_once_an_epoch(
    small, tmp_path, monkeypatch, workers
):
    """Begun and resumed by fairseq-train and scripts/train.py in turn."""
    program = forks()
    through, killed = tmp_path / "through", tmp_path / "killed"
    logs = {folder: tmp_path / f"{folder.name}.jsonl" for folder in (through, killed)}
    tokens = 2000 // workers  # so that an epoch has as many updates

    def by_fairseq(folder) -> list:
        flags = ["--max-epoch", "2", "--save-interval-updates", "3", "--keep-interval-updates", "1"]
        return ["fairseq_cli.train", *same_flags(small, folder, "--max-tokens", str(tokens), *flags)]

    saving = {"max_epoch": 2}, {"save_interval_updates": 3, "keep_interval_updates": 1}
    settings = dict(zip(("optimization", "checkpoint"), saving), dataset={"max_tokens": tokens})
    by_hydra = ["scripts/train.py", same_config(small, killed, tmp_path / "same.yaml", **settings)]

    done = program.run(RECORDER, logs[through], workers, *by_fairseq(through))
    assert done.returncode == 0, done.stderr[-5000:]
    expected = read_record(logs[through])
    beginnings = {epoch: update for update, (epoch, _) in reversed(expected[0].items())}
    assert beginnings[2] > 8

    for epoch, words in zip((1, 2), (by_fairseq(killed), by_hydra)):
        monkeypatch.setenv("KILLED_AT", str(beginnings[epoch] + 4))
        assert program.run(RECORDER, logs[killed], workers, *words).returncode == -signal.SIGKILL
        position = load_checkpoint(killed / "checkpoint_last.pt")["extra_state"]["train_iterator"]
        assert position["epoch"] == epoch and position["iterations_in_epoch"] > 0
    monkeypatch.delenv("KILLED_AT")
    done = program.run(RECORDER, logs[killed], workers, *by_fairseq(killed))
    assert done.returncode == 0, done.stderr[-5000:]

    sentences = len(lines(small / "text" / "train.de"))
    record = read_record(logs[killed])
    assert record == expected and sorted(record) == list(range(workers))
    for epoch in (1, 2):
        updates = [seen for worker in record.values() for at, seen in worker.values() if at == epoch]
        assert sorted(itertools.chain.from_iterable(updates)) == list(range(sentences))
    assert_same_training(through, killed)


def test_a_process_ends_well_while_batches_are_prepared():
    """With fairseq alone it aborts, and so, at times, does a training that ends in the midst of an epoch."""
    assert run(sys.executable, ROOT / "tests" / "end_to_end" / "endless_batches.py").stdout == "8000.0\n"
