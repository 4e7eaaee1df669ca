"""Ordered processing of batches in several processes, with few batches in memory at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

from ..errors import UserError

BATCH = 10_000  # lines, or pairs of lines
MAX_BATCH = 8 << 20  # characters of a batch; 10,000 sentences have two millions
WORKERS = 1000  # maximum; each needs memory
Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def batches(items: Iterable[Item], size: int = BATCH) -> Iterator[list[Item]]:
    """The items in lists of ``size``, or of fewer if they are long lines; the last may be shorter."""
    batch, length = [], 0
    for item in items:
        batch.append(item)
        length += (
            sum(map(len, item)) if isinstance(item, tuple) else len(item) if isinstance(item, str) else 0
        )
        if len(batch) == size or length > MAX_BATCH:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def map_batches(
    function: Callable[[list[Item]], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Apply ``function`` to each batch, in order; a single batch or worker runs in this process."""
    waiting = batches(items)
    first = list(islice(waiting, 2))
    waiting = chain(first, waiting)
    if workers == 1 or len(first) < 2:
        yield from map(function, waiting)
        return
    # Fork if possible, because a new process needs seconds to import fairseq.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(os.getpid(),)) as pool:
        running: deque = deque()
        try:
            for batch in waiting:
                running.append(pool.submit(function, batch))
                if len(running) > workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process was killed, possibly for lack of memory; use fewer --workers"
            ) from None
        finally:
            for each in running:
                each.cancel()


def _begin(parent: int) -> None:
    """Leave Ctrl-C to the parent, and exit if the parent has been killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
