"""Two workers started by torchrun on the CPU: the same training as with one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from commands import ROOT, checked, fairseq, forks, read_alpha_log
from recorded import RECORDER
from same_training import same_config, same_flags

from user_dir.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow

# Without dropout, whose random numbers each worker draws for itself.
FLAGS = ["--dropout", "0", "--disable-validation", "--alpha-freeze-updates", "1", "--max-tokens", "2000"]
SAME = {
    "model": {"dropout": 0.0, "alpha_freeze_updates": 1},
    "dataset": {"disable_validation": True, "max_tokens": 2000},
}
PATIENCE = 300  # seconds, then torchrun is told to end, and takes its workers along


@contextmanager
def torchrun(output: Path, *command):
    """Two workers of a module or a script; their output is written to ``output``."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    with output.open("w") as file:
        process = subprocess.Popen(
            [str(word) for word in (*launcher, *command)],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)


def fairseq_train(corpus: Path, folder: Path, *flags) -> list:
    return ["-m", "fairseq_cli.train", *same_flags(corpus, folder, *FLAGS, *flags)]


def average_loss(state: dict) -> float:
    """Over all updates so far, with more digits than in the log line."""
    meters = {key: meter for _, key, _, meter in state["extra_state"]["metrics"]["train"]}
    return float(meters["loss"]["sum"] / meters["loss"]["count"])


def start(by: str, output: Path, *command) -> None:
    """Train to the end with two workers, started by torchrun or, in less time, as forks like its workers."""
    if by == "forks":
        words = command[1:] if command[0] == "-m" else ["scripts/train.py", *command[1:]]
        done = checked(forks().run(RECORDER, output.with_suffix(".record"), 2, *words), True)
        output.write_text(done.stdout + done.stderr)
        return
    with torchrun(output, *command) as process:
        assert process.wait(PATIENCE) == 0, output.read_text()[-5000:]


@pytest.mark.parametrize("by", ["forks", pytest.param("torchrun", marks=pytest.mark.nightly)])
def test_two_workers_train_as_one_with_twice_the_batches(small, tmp_path, by):
    """Begun by fairseq-train, and ended, from epoch 2 on, by scripts/train.py."""
    corpus, by_one, by_two = small, tmp_path / "one", tmp_path / "two"
    fairseq("train", *same_flags(corpus, by_one, *FLAGS, "--update-freq", "2", "--max-update", "10"))

    output = tmp_path / "output"
    config = same_config(corpus, by_two, tmp_path / "same.yaml", **SAME)
    script = [ROOT / "scripts" / "train.py", config, "optimization.max_update=10"]
    for command in (fairseq_train(corpus, by_two, "--max-update", "8"), script):
        start(by, output, *command)
    assert re.search(r"Loaded checkpoint .*\(epoch 2 @ 8 updates\)", output.read_text())

    single, several = (load_checkpoint(folder / "checkpoint_last.pt") for folder in (by_one, by_two))
    assert average_loss(several) == pytest.approx(average_loss(single), abs=1e-4)
    for name, value in single["model"].items():
        torch.testing.assert_close(several["model"][name], value, rtol=0, atol=1e-5)
    lines, expected = (read_alpha_log(folder / "alpha.jsonl") for folder in (by_two, by_one))
    assert [line["update"] for line in lines] == list(range(11)), "one line an update, by one worker"
    for line, other in zip(lines, expected):
        for attention_type in ("encoder_self", "decoder_self", "decoder_context"):
            alphas, wanted = torch.tensor(line[attention_type]), torch.tensor(other[attention_type])
            torch.testing.assert_close(alphas, wanted, rtol=0, atol=1e-5)
    assert lines[0]["encoder_self"] == lines[1]["encoder_self"] != lines[10]["encoder_self"]
