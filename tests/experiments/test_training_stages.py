"""The training stage of a run: how many processes share it, and what an interruption leaves running."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from user_dir.checkpoints import save_checkpoint
from user_dir.errors import UserError
from user_dir.experiments import training_stages

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "toy" / "alpha_entmax.yaml"


def job(folder: Path, **optimization) -> SimpleNamespace:
    overrides = (f"optimization.{key}={value}" for key, value in optimization.items())
    run = SimpleNamespace(config=CONFIG, overrides=tuple(overrides), seed=3)
    return SimpleNamespace(folder=folder, run=run, settings={"config": {"optimization": optimization}})


@pytest.fixture
def started(monkeypatch):
    """The commands that are run, instead of running them."""
    commands = []
    monkeypatch.setattr(training_stages, "run_child", lambda name, command, *_: commands.append(command))
    monkeypatch.setattr(training_stages, "training_command", lambda *_: (["alone"], {}))
    return commands


def test_workers_share_the_batches_of_an_update(tmp_path, started):
    training_stages.train(job(tmp_path, update_freq=[4, 8], max_update=20), (), workers=2)
    (command,) = started
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"] and "--nproc-per-node=2" in command
    given = [word for word in command if word.startswith("optimization.update_freq=")]
    assert given == ["optimization.update_freq=[4, 8]", "optimization.update_freq=[2, 4]"], "the last counts"
    assert "common.seed=3" in command and f"checkpoint.save_dir='{tmp_path}'" in command
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["done"] and [session["workers"] for session in record["sessions"]] == [2]


@pytest.mark.parametrize("limit", [0, None])
def test_a_training_may_be_limited_by_epochs_alone(tmp_path, started, limit):
    training_stages.train(job(tmp_path, max_update=limit), ())
    assert started == [["alone"]]


def test_one_worker_needs_no_torchrun(tmp_path, started):
    training_stages.train(job(tmp_path), ())
    assert started == [["alone"]]


@pytest.mark.parametrize(("optimization", "shown"), [({}, "[1]"), ({"update_freq": [4, 6]}, "[4, 6]")])
def test_batches_that_workers_cannot_share_are_refused(tmp_path, started, optimization, shown):
    with pytest.raises(UserError, match="4 workers cannot share") as error:
        training_stages.train(job(tmp_path, **optimization), (), workers=4)
    assert shown in str(error.value) and "--workers" in str(error.value)
    assert not started and not (tmp_path / "training.json").exists()


def save(path: Path, updates: int) -> bytes:
    settings = {"model": {"_name": "transformer"}, "task": {"_name": "translation"}}
    history = [{"num_updates": updates}]
    save_checkpoint({"model": {"w": torch.ones(2)}, "cfg": settings, "optimizer_history": history}, path)
    return path.read_bytes()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_corrupt_last_checkpoint_is_replaced_and_kept(tmp_path):
    last, names = tmp_path / "checkpoint_last.pt", ["checkpoint_last.pt.broken", "checkpoint_last.pt.broken1"]
    assert training_stages.mend_last_checkpoint(tmp_path) == 0 and not contents(tmp_path)
    whole, cut = save(tmp_path / "checkpoint1.pt", 5), save(last, 7)[:700]
    assert training_stages.mend_last_checkpoint(tmp_path) == 7 and len(contents(tmp_path)) == 2
    for number, broken in enumerate([cut, cut + b"x"], 1):
        last.write_bytes(broken)
        assert training_stages.mend_last_checkpoint(tmp_path) == 5
        kept = dict(zip(names, [cut, cut + b"x"][:number]))
        assert contents(tmp_path) == {"checkpoint1.pt": whole, last.name: whole, **kept}
    (tmp_path / "checkpoint1.pt").unlink()
    last.write_bytes(b"")
    assert training_stages.mend_last_checkpoint(tmp_path) == 0
    assert not last.exists() and (tmp_path / "checkpoint_last.pt.broken2").read_bytes() == b""


@pytest.mark.parametrize("unreadable", ["checkpoint_last.pt", "checkpoint2.pt"])
@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EMFILE, "Too many open files"),
        MemoryError(),
        RuntimeError("unable to mmap 9 bytes from file <a>: Cannot allocate memory (12)"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_now_is_not_given_up(tmp_path, monkeypatch, unreadable, error):
    for number, name in enumerate(("checkpoint1.pt", "checkpoint2.pt", "checkpoint_last.pt"), 1):
        save(tmp_path / name, number)
        os.utime(tmp_path / name, (number, number))
    if unreadable != "checkpoint_last.pt":
        (tmp_path / "checkpoint_last.pt").write_bytes(b"cut")
    before, load = contents(tmp_path), torch.load

    def fail(file, *args, **kwargs):
        if unreadable in file:
            raise error
        return load(file, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", fail)
        with pytest.raises(UserError, match=rf"{unreadable} cannot be read: "):
            training_stages.mend_last_checkpoint(tmp_path)
    assert contents(tmp_path) == before


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

    monkeypatch.setattr(training_stages.subprocess, "Popen", Interrupted)
    monkeypatch.setattr(training_stages, "SECONDS_TO_END", seconds)
    command = [sys.executable, "-c", program.format(started=file)]
    with pytest.raises(KeyboardInterrupt):
        training_stages.run_child("training", command, tmp_path / "log")
    deadline = time.monotonic() + 60
    while runs(int(file.read_text())):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.02)


def test_too_few_epochs_for_the_average_keep_their_checkpoints(tmp_path):
    (tmp_path / "checkpoint1.pt").touch()
    run = SimpleNamespace(average=2)
    with pytest.raises(UserError, match="set average to 1"):
        training_stages.average(SimpleNamespace(folder=tmp_path, run=run, average=tmp_path / "average.pt"))
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint1.pt"]
