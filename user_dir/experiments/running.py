"""Runs an experiment sequentially; several processes can share the runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from ..errors import UserError, one_line
from ..io import Busy, write_text
from . import evaluating, records, training_stages
from .folders import Job, claim, is_recorded

logger = logging.getLogger(__name__)
Say = Callable[[str], None]


def run_all(jobs: list[Job], say: Say, workers: int = 1) -> tuple[dict[str, str], list[str]]:
    """Run everything that is not done yet.

    A run locked by another process is tried again after the others, in case that process has ended.

    Args:
        jobs: the runs.
        say: told what is being done.
        workers: the processes that train a run together.

    Returns:
        The reasons of failed runs, and the runs that another process still has locked, by label.
    """
    failed: dict[str, str] = {}
    waiting = jobs
    while waiting:
        busy = []
        for job in waiting:
            try:
                if is_recorded(job):
                    continue
                with job.lock() as descriptors:
                    _run(job, descriptors, say, workers)
            except Busy:
                busy.append(job)
            except Exception as error:
                failed[job.run.label] = _reason(error)
                say(f"{job.run.label}: failed: {failed[job.run.label]}")
        if len(busy) == len(waiting):
            break
        waiting = busy
    return failed, [job.run.label for job in waiting]


def _run(job: Job, descriptors: tuple[int, ...], say: Say, workers: int) -> None:
    """All stages of one run; each skips work that is already done."""
    claim(job)
    stages: list[tuple[str, Callable[[], None]]] = [
        ("training", lambda: training_stages.train(job, descriptors, workers)),
        ("averaging", lambda: training_stages.average(job)),
        ("evaluating", lambda: evaluating.evaluate(job)),
        ("heads", lambda: evaluating.heads(job)),
        ("importance", lambda: evaluating.importance(job)),
        ("loss", lambda: evaluating.loss(job, descriptors)),
        *([("search", lambda: evaluating.search(job))] if job.run.search else []),
        ("result", lambda: evaluating.conclude(job)),
        ("record", lambda: records.keep(job)),
    ]
    job.failure.unlink(missing_ok=True)
    try:
        for name, stage in stages:
            say(f"{datetime.now():%H:%M:%S} {job.run.label}: {name}")
            stage()
    except Exception as error:
        if not isinstance(error, (UserError, OSError)):
            logger.exception("%s: unexpected", job.run.label)
        write_text(job.failure, f"{_reason(error)}\n")
        raise


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, UserError) else one_line(error)
