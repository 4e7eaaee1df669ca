"""Training that is killed, at any moment and in each epoch; at each write: ``test_faults.py``."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time

import pytest
from commands import ROOT, fairseq, forks, lines, run, train_flags, wait_for_line
from forks import Forks
from recorded import read_record
from same_training import assert_same_training, same_config, same_flags

from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("KILLS_SEED", "1"))


def half_written(folder) -> dict:
    """The checkpoints being written, or left so by a kill, and when they were last written to."""
    found = {}
    for path in folder.glob("*.pt.*tmp"):
        with contextlib.suppress(FileNotFoundError):
            found[path.name] = path.stat().st_mtime_ns
    return found


def updates_in(log) -> list[int]:
    """The updates of whole lines of an α log, which may not be there yet."""
    whole = log.read_text().split("\n")[:-1] if log.exists() else []
    return [json.loads(line)["update"] for line in whole]


def wait_for_update(program: Forks, log, update: int) -> None:
    """Until the record of a training says that worker 0 has made an update."""
    program.wait_until(lambda: log.exists() and update in read_record(log).get(0, {}))


@pytest.mark.nightly
def test_training_killed_again_and_again_ends_as_if_it_never_was(corpus, tmp_path):
    """A third of the kills at any moment, a third as a checkpoint is written, a third as α is."""

    def flags(folder):
        flags = ["--alpha-log", folder / "alpha.jsonl", "--alpha-log-interval", "1", "--max-valid-steps", "1"]
        flags += ["--save-interval-updates", "3", "--keep-interval-updates", "2", "--keep-last-epochs", "2"]
        flags += ["--max-tokens", "300"]
        return train_flags(corpus, folder, *flags, "--max-update", str(max(30, 8 * KILLS)))

    through, killed = tmp_path / "through", tmp_path / "killed"
    begin = time.monotonic()
    fairseq("train", *flags(through))
    length = time.monotonic() - begin

    log, chance, in_writing = killed / "alpha.jsonl", random.Random(SEED), 0
    program = forks()
    killed.mkdir()
    for number in range(KILLS):
        leftover, before = half_written(killed), len(updates_in(log))
        program.start("-m", "fairseq_cli.train", *flags(killed))
        if number % 3 == 0:
            # also in its start, and far from its end, however busy the machine now is
            moment = time.monotonic() + chance.uniform(0, 0.3) * length
            program.wait_until(lambda: time.monotonic() > moment or len(updates_in(log)) > before + 15)  # noqa: B023
        elif number % 3 == 1:
            wait_for_line(program, log)
            for _ in range(chance.randint(1, 4)):
                program.wait_until(lambda: not half_written(killed))
                program.wait_until(lambda: half_written(killed))
            time.sleep(chance.uniform(0, 0.01))
        else:
            for _ in range(chance.randint(1, 6)):
                wait_for_line(program, log)
        assert program.running()
        kind = signal.SIGTERM if number == 2 else signal.SIGKILL
        assert program.kill(kind).returncode == -kind
        in_writing += not half_written(killed).items() <= leftover.items()
    print(f"{in_writing} of {KILLS} kills left a checkpoint half-written")
    fairseq("train", *flags(killed))

    updates = updates_in(log)
    assert updates == list(range(len(updates)))
    checkpoints = sorted(path.name for path in through.glob("checkpoint*"))
    assert sorted(path.name for path in killed.glob("checkpoint*")) == checkpoints
    assert "checkpoint_last.pt" in checkpoints
    assert_same_training(through, killed, *checkpoints)

    before = (killed / "checkpoint_last.pt").read_bytes(), log.read_bytes()
    done = fairseq("train", *flags(killed))
    assert "nothing to train" in done.stdout + done.stderr
    assert ((killed / "checkpoint_last.pt").read_bytes(), log.read_bytes()) == before


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_killed_in_each_epoch_a_training_sees_each_sentence_once_an_epoch(small, tmp_path, workers):
    """Begun and resumed by fairseq-train and scripts/train.py in turn."""
    program, recorder = forks(), ROOT / "tests" / "end_to_end" / "recorded.py"
    through, killed = tmp_path / "through", tmp_path / "killed"
    logs = {folder: tmp_path / f"{folder.name}.jsonl" for folder in (through, killed)}
    tokens = 1000 // workers  # so that an epoch has as many updates

    def by_fairseq(folder) -> list:
        flags = ["--max-epoch", "2", "--save-interval-updates", "3", "--keep-interval-updates", "1"]
        return ["fairseq_cli.train", *same_flags(small, folder, "--max-tokens", str(tokens), *flags)]

    saving = {"max_epoch": 2}, {"save_interval_updates": 3, "keep_interval_updates": 1}
    settings = dict(zip(("optimization", "checkpoint"), saving), dataset={"max_tokens": tokens})
    by_hydra = ["scripts/train.py", same_config(small, killed, tmp_path / "same.yaml", **settings)]

    done = program.run(recorder, logs[through], workers, *by_fairseq(through))
    assert done.returncode == 0, done.stderr[-5000:]
    expected = read_record(logs[through])
    beginnings = {epoch: update for update, (epoch, _) in reversed(expected[0].items())}
    assert list(beginnings.values()) != [1] and beginnings[2] > 8

    for epoch, words in zip((1, 2), (by_fairseq(killed), by_hydra)):
        program.start(recorder, logs[killed], workers, *words)
        wait_for_update(program, logs[killed], beginnings[epoch] + 4)
        assert program.kill(signal.SIGKILL).returncode == -signal.SIGKILL
        position = load_checkpoint(killed / "checkpoint_last.pt")["extra_state"]["train_iterator"]
        assert position["epoch"] == epoch and position["iterations_in_epoch"] > 0
    done = program.run(recorder, logs[killed], workers, *by_fairseq(killed))
    assert done.returncode == 0, done.stderr[-5000:]

    sentences = len(lines(small / "text" / "train.de"))
    found = read_record(logs[killed])
    assert found == expected and sorted(found) == list(range(workers))
    for epoch in (1, 2):
        updates = [seen for each in found.values() for at, seen in each.values() if at == epoch]
        assert sorted(itertools.chain.from_iterable(updates)) == list(range(sentences))
    assert_same_training(through, killed)


@pytest.mark.nightly
def test_a_process_ends_well_while_batches_are_prepared():
    """With fairseq alone it aborts, and so, at times, does a training that ends in the midst of an epoch."""
    assert run(sys.executable, ROOT / "tests" / "end_to_end" / "endless_batches.py").stdout == "8000.0\n"
