"""Whatever a training has started ends with it, also where a shell has made it ignore Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import ROOT, train_flags
from forks import environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the processes from /proc"),
]
PATIENCE, SECONDS_TO_END = 120, 60  # torch's loading workers look for their parent every 5 s
ENDLESS = ["--max-epoch", "9999", "--disable-validation", "--max-tokens", "200"]
# fairseq starts a worker for each GPU.
GPUS = """
import torch
if __name__ == "__main__":
    torch.cuda.device_count = lambda: 2
    from fairseq_cli.train import cli_main
    cli_main()
"""


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, directly or not, and that have not ended."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has just ended
            continue
        if state not in "ZX":
            parents[int(path.parent.name)] = int(parent)
    found, last = set(), {pid}
    while last:
        last = {child for child, parent in parents.items() if parent in last}
        found |= last
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not (done := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return done


def assert_all_end(
    command: list, begun: str, processes: int, number: int, ignored: tuple, output: Path
) -> None:
    """Start a command; once ``begun`` is in its output and it has ``processes``, send it a signal."""

    def before() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for each in ignored:
            signal.signal(each, signal.SIG_IGN)

    with output.open("w") as file:
        words = [sys.executable, *map(str, command)]
        options = {"cwd": ROOT, "env": environment(), "stdout": file, "stderr": file, "preexec_fn": before}
        program = subprocess.Popen(words, **options, start_new_session=True)
    started: set[int] = set()
    try:

        def training() -> bool:
            started.update(descendants(program.pid))
            return program.poll() is not None or (begun in output.read_text() and len(started) >= processes)

        assert wait_until(training, PATIENCE) and program.poll() is None, output.read_text()[-3000:]
        os.kill(program.pid, number)
        program.wait(SECONDS_TO_END)
        wait_until(lambda: not any(map(alive, started)), SECONDS_TO_END)
        assert not [pid for pid in started if alive(pid)]
    finally:
        for pid in {program.pid, *started}:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        program.wait()


@pytest.mark.nightly  # three processes import fairseq
def test_workers_of_several_gpus(corpus, tmp_path):
    (tmp_path / "two_gpus.py").write_text(GPUS)
    distributed = ["--cpu", "--distributed-world-size", "2", "--distributed-backend", "gloo"]
    distributed += ["--ddp-backend", "legacy_ddp", "--distributed-init-method", f"file://{tmp_path}/meeting"]
    flags = train_flags(corpus, tmp_path / "run", *ENDLESS, *distributed)
    command = [tmp_path / "two_gpus.py", *flags]
    assert_all_end(command, "begin training epoch", 2, signal.SIGTERM, (signal.SIGINT,), tmp_path / "output")


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("launcher", ["alone", "torchrun"])
def test_loading_workers(corpus, tmp_path, launcher, number):
    config = ROOT / "configs" / "toy" / "alpha_entmax.yaml"
    changes = [f"task.data={corpus / 'bin'}", f"checkpoint.save_dir={tmp_path / 'run'}"]
    changes += ["dataset.num_workers=2", "dataset.max_tokens=200", "dataset.disable_validation=true"]
    command = [ROOT / "scripts" / "train.py", config, *changes, "optimization.max_update=99999"]
    processes = 2
    if launcher == "torchrun":
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *command]
        processes = 6
    assert_all_end(command, "update", processes, number, (), tmp_path / "output")
