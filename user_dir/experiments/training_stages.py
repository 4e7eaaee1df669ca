"""The first stages of a run: training, resumed if it was killed, and averaging of the last epochs."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timezone
from itertools import chain, count
from pathlib import Path

from ..checkout import ROOT
from ..checkpoints import (
    average_checkpoints,
    epoch_checkpoints,
    last_epoch_checkpoints,
    num_updates,
    save_checkpoint,
    whole_checkpoints,
)
from ..config import training_command
from ..errors import UserError
from ..io import copy_file, write_json
from .folders import Job, read_json

logger = logging.getLogger(__name__)

SECONDS_TO_END = 40.0  # torchrun gives its workers 30 after SIGTERM


def train(job: Job, descriptors: tuple[int, ...], workers: int = 1) -> None:
    """Train to the end, resuming from the last checkpoint if there is one.

    Each session, including killed ones, is recorded in training.json with its time and its workers.

    Raises:
        UserError: training fails, or the workers cannot share the batches; see :func:`training_by_workers`.
    """
    path = job.folder / "training.json"
    record = read_json(path) if path.is_file() else {"done": False, "sessions": []}
    if record["done"]:
        return
    updates = mend_last_checkpoint(job.folder)
    limit = job.settings["config"].get("optimization", {}).get("max_update")
    if updates < (limit or math.inf):  # fairseq, too, takes 0 and null for no limit
        folder, run = str(job.folder).replace("'", r"\'"), job.run
        overrides = [*run.overrides, f"common.seed={run.seed}"]
        overrides += [f"checkpoint.save_dir='{folder}'", "common.log_format=json"]
        command, environment = training_command(run.config, overrides, ROOT)
        if workers > 1:
            command = training_by_workers(job, overrides, workers)
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        session = {"started": started, "from": updates, "workers": workers}
        record["sessions"].append(session)
        write_json(path, record)
        begin, before = time.monotonic(), os.times()
        try:
            run_child("training", command, job.folder / "training.log", descriptors, environment)
        finally:
            after = os.times()
            session["seconds"] = round(time.monotonic() - begin, 1)
            session["processor_seconds"] = round(
                after.children_user + after.children_system - before.children_user - before.children_system, 1
            )
            write_json(path, record)
    record["done"] = True
    write_json(path, record)


def training_by_workers(job: Job, overrides: list[str], workers: int) -> list[str]:
    """The command that trains with ``workers`` processes, started by torchrun, on batches of the same size.

    Raises:
        UserError: ``update_freq``, the batches per update, cannot be divided by the number of workers.
    """
    batches = check_workers(job.settings["config"], workers)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    command += ["-m", f"{__package__}.worker", str(job.run.config), *overrides]
    return [*command, f"optimization.update_freq={[number // workers for number in batches]}"]


def check_workers(config: dict, workers: int) -> list[int]:
    """The batches per update, ``update_freq``; raises UserError if ``workers`` cannot share them."""
    batches = config.get("optimization", {}).get("update_freq", [1])
    if any(number % workers for number in batches):
        raise UserError(
            f"{workers} workers cannot share the batches of an update, because optimization.update_freq is "
            f"{batches}; choose --workers so that it divides"
        )
    return batches


def mend_last_checkpoint(folder: Path) -> int:
    """Replace checkpoint_last.pt by the newest complete checkpoint if it is missing or corrupt.

    A corrupt one is kept as checkpoint_last.pt.broken. Returns the number of updates of the checkpoint, or 0
    if there is none.

    Raises:
        UserError: a checkpoint could not be read, though it may be whole; nothing is changed.
    """
    last = folder / "checkpoint_last.pt"
    epochs = epoch_checkpoints(folder).values()
    candidates = chain(whole_checkpoints(filter(Path.is_file, [last])), whole_checkpoints(epochs))
    path, state = next(candidates, (None, {}))
    if path == last:
        return num_updates(state)
    if os.path.lexists(last):
        names = (last.with_name(f"{last.name}.broken{number or ''}") for number in count())
        broken = next(name for name in names if not os.path.lexists(name))
        last.rename(broken)
        logger.warning("%s is corrupt; it is kept as %s", last, broken.name)
    if path is not None:
        copy_file(path, last)
    return num_updates(state)


def average(job: Job) -> None:
    """Average the checkpoints of the last epochs, or take the moving average; then remove all others.

    Raises:
        UserError: training ended before as many epochs.
    """
    epochs = epoch_checkpoints(job.folder)
    if not job.average.is_file():
        ema = job.run.average == "ema"
        if not ema and len(epochs) < job.run.average:
            less = f"set average to {len(epochs)} and run again, or " if epochs else ""
            raise UserError(
                f"average is {job.run.average}, but {len(epochs)} epochs were trained; {less}train longer"
            )
        last = [job.folder / "checkpoint_last.pt"]
        paths = last if ema else last_epoch_checkpoints(job.folder, job.run.average)
        save_checkpoint(average_checkpoints(paths, ema), job.average)
    for path in [*epochs.values(), *job.folder.glob("checkpoint_*.pt")]:
        path.unlink()


def run_child(
    name: str,
    command: list[str],
    log: Path,
    descriptors: tuple[int, ...] = (),
    environment: dict[str, str] | None = None,
) -> None:
    """Run a command, appending its output to ``log``; it inherits the lock of ``descriptors``.

    If this process is interrupted, the command and all its children are ended.

    Raises:
        UserError: the command fails; with its last error message.
    """
    with log.open("a", encoding="utf-8") as file:
        begin = file.tell()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            pass_fds=descriptors,
            start_new_session=True,
            cwd=ROOT,
            env=environment,
        )
        try:
            status = child.wait()
        except BaseException:
            _end(child)
            raise
    if status:
        with log.open("rb") as file:
            file.seek(begin)
            said = file.read().decode("utf-8", errors="replace").strip().split("\n")
        errors = [line for line in said if re.match(r"[\w.]*[Ee]rror: \S", line)]
        reason = (errors or said)[-1].strip()
        raise UserError(f"{name} ended with status {status}: {reason}; see {log}")


def _end(child: subprocess.Popen) -> None:
    """End a command and its children; torchrun must be asked, since its workers are not of its group."""
    try:
        os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(SECONDS_TO_END)
    finally:  # also if it is interrupted again
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
