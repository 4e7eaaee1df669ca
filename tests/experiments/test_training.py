"""The training stage of a run: how many processes share it, and what an interruption leaves running."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from user_dir.errors import UserError
from user_dir.experiments import training

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "toy" / "alpha_entmax.yaml"


def job(folder: Path, **optimization) -> SimpleNamespace:
    overrides = (f"optimization.{key}={value}" for key, value in optimization.items())
    run = SimpleNamespace(config=CONFIG, overrides=tuple(overrides), seed=3)
    return SimpleNamespace(folder=folder, run=run, asked={"config": {"optimization": optimization}})


@pytest.fixture
def started(monkeypatch):
    """The commands that are run, instead of running them."""
    commands = []
    monkeypatch.setattr(training, "run_child", lambda name, command, *_: commands.append(command))
    monkeypatch.setattr(training, "training_command", lambda *_: (["alone"], {}))
    return commands


def test_workers_share_the_batches_of_an_update(tmp_path, started):
    training.train(job(tmp_path, update_freq=[4, 8], max_update=20), (), workers=2)
    (command,) = started
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"] and "--nproc-per-node=2" in command
    given = [word for word in command if word.startswith("optimization.update_freq=")]
    assert given == ["optimization.update_freq=[4, 8]", "optimization.update_freq=[2, 4]"], "the last counts"
    assert "common.seed=3" in command and f"checkpoint.save_dir='{tmp_path}'" in command
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["done"] and [session["workers"] for session in record["sessions"]] == [2]


def test_one_worker_needs_no_torchrun(tmp_path, started):
    training.train(job(tmp_path), ())
    assert started == [["alone"]]


@pytest.mark.parametrize(("optimization", "shown"), [({}, "[1]"), ({"update_freq": [4, 6]}, "[4, 6]")])
def test_batches_that_workers_cannot_share_are_refused(tmp_path, started, optimization, shown):
    with pytest.raises(UserError, match="4 workers cannot share") as error:
        training.train(job(tmp_path, **optimization), (), workers=4)
    assert shown in str(error.value) and "--workers" in str(error.value)
    assert not started and not (tmp_path / "training.json").exists()


# Like torchrun: its worker is of another process group, and it ends it when it is asked to end.
LAUNCHER = """
import signal, subprocess, sys
from pathlib import Path
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
def end(*_):
    worker.terminate()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
Path("{started}").write_text(str(worker.pid))
worker.wait()
"""
STUBBORN = """
import os, signal, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path("{started}").write_text(str(os.getpid()))
time.sleep(600)
"""


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes as Linux lists them")
@pytest.mark.parametrize(("program", "seconds"), [(LAUNCHER, 60.0), (STUBBORN, 0.2)], ids=["asked", "killed"])
def test_an_interruption_ends_every_process(tmp_path, monkeypatch, program, seconds):
    file = tmp_path / "started"

    class Interrupted(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout is None and self.poll() is None and not getattr(self, "interrupted", False):
                while not (file.exists() and file.read_text()):
                    time.sleep(0.02)
                self.interrupted = True
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(training.subprocess, "Popen", Interrupted)
    monkeypatch.setattr(training, "SECONDS_TO_END", seconds)
    command = [sys.executable, "-c", program.format(started=file)]
    with pytest.raises(KeyboardInterrupt):
        training.run_child("training", command, tmp_path / "log")
    deadline = time.monotonic() + 60
    while runs(int(file.read_text())):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.02)
