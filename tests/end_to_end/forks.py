"""Trainings by the dozen: forks of one process that has imported fairseq, most of what a start takes.

Each runs fairseq's command to the interpreter's own end: what it says and its exit status are those of a
process started anew.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Forks:
    """Runs one fairseq command after the other, each writing what it says to ``folder``."""

    def __init__(self, folder: Path):
        self.said = [str(folder / "stdout"), str(folder / "stderr")]
        self.parent = subprocess.Popen(
            [sys.executable, __file__],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, command: str, flags: list[str], file_size: int | None = None) -> None:
        """Start ``fairseq-COMMAND``; with ``file_size``, no file of it can grow beyond so many bytes."""
        self.parent.stdin.write(json.dumps([command, flags, self.said, file_size]) + "\n")
        self.parent.stdin.flush()
        self.pid = int(self.parent.stdout.readline())

    def running(self) -> bool:
        return not select.select([self.parent.stdout], [], [], 0)[0]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the command is to do, looking every half millisecond."""
        while not condition():
            assert self.running(), "the command ended before: " + Path(self.said[1]).read_text()[-3000:]
            time.sleep(0.0005)

    def kill(self, number: int) -> subprocess.CompletedProcess:
        os.kill(self.pid, number)
        return self.finish()

    def finish(self) -> subprocess.CompletedProcess:
        """Wait for its end; returns what it said."""
        status = int(self.parent.stdout.readline())
        stdout, stderr = (Path(name).read_text() for name in self.said)
        return subprocess.CompletedProcess(self.pid, status, stdout, stderr)

    def run(self, command: str, flags: list[str], file_size: int | None = None):
        self.start(command, flags, file_size)
        return self.finish()

    def close(self) -> None:
        self.parent.communicate()


def next_command() -> Callable[[], None]:
    """Fork for each command that comes in; returns, in the fork, what runs it."""
    from fairseq_cli import hydra_train, train

    import user_dir  # noqa: F401

    # A shell starts what goes to the background with Ctrl-C ignored, and children inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            command, flags, said, file_size = json.loads(line)
            for stream, name in zip((1, 2), said):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
            if file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
            sys.argv = [f"fairseq-{command}", *flags]
            return {"train": train.cli_main, "hydra_train": hydra_train.cli_main}[command]
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    sys.exit()


if __name__ == "__main__":
    next_command()()
