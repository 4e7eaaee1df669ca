"""A training that records which sentences each of its updates saw, and may be killed after one of them.

usage: recorded.py LOG WORKERS TRAIN ARGUMENT…
TRAIN is a module of fairseq's, or scripts/train.py. LOG gets a line of JSON for each update and worker: rank,
epoch, number of the update, numbers of the sentences. Several workers are forks of this process, with the
variables that torchrun gives them; they die with worker 0, which KILLED_AT=UPDATE has kill itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path

RECORDER = Path(__file__).resolve()
ROOT = RECORDER.parents[2]


def read_record(path: Path) -> dict[int, dict[int, tuple[int, list[int]]]]:
    """By rank and update: its epoch and its sentences. An update made again counts as the last."""
    updates: dict = {}
    for line in path.read_text().splitlines():
        rank, epoch, update, sentences = json.loads(line)
        updates.setdefault(rank, {})[update] = epoch, sentences
    return updates


def record(path: str) -> None:
    """Have fairseq's trainer write the lines."""
    from fairseq.trainer import Trainer

    begin_epoch, train_step = Trainer.begin_epoch, Trainer.train_step
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def begin_and_note(self, epoch):
        self.noted_epoch = epoch
        return begin_epoch(self, epoch)

    def step_and_record(self, samples, *args, **kwargs):
        logged = train_step(self, samples, *args, **kwargs)
        sentences = [number for sample in samples if sample for number in sample["id"].tolist()]
        line = [self.data_parallel_rank, self.noted_epoch, self.get_num_updates(), sentences]
        os.write(file, json.dumps(line).encode() + b"\n")
        if self.data_parallel_rank == 0 and os.environ.get("KILLED_AT") == str(self.get_num_updates()):
            os.kill(os.getpid(), signal.SIGKILL)
        return logged

    Trainer.begin_epoch, Trainer.train_step = begin_and_note, step_and_record


def become_workers(number: int) -> None:
    """Fork; every process goes on, with torchrun's variables of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    os.environ.update(variables, WORLD_SIZE=str(number))
    rank = 0
    for other in range(1, number):
        if not os.fork():
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            rank = other
            break
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))


if __name__ == "__main__":
    path, workers, *words = sys.argv[1:]
    if int(workers) > 1:
        become_workers(int(workers))
    sys.path.insert(0, str(ROOT))
    record(path)
    if words[0] == "scripts/train.py":
        from user_dir.config import training_arguments

        words = ["fairseq_cli.hydra_train", *training_arguments(Path(words[1]), words[2:], ROOT)]
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
