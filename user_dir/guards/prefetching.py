"""A run that has done all its work aborts with status 134.

fairseq prepares batches in a daemon thread (0.12.2 and later). The interpreter does not wait for it when
updates end in the middle of an epoch; back from an operation of PyTorch's, the thread then aborts the
process. Unnecessary once fairseq joins that thread.
"""

from __future__ import annotations

import atexit
import math
import threading

from fairseq.data.iterators import BackgroundConsumer

PATIENCE = 30  # seconds for a batch that is being prepared as a run ends


def install() -> None:
    """End these threads before the interpreter ends."""
    atexit.register(end_prefetching)


def end_prefetching() -> None:
    """Let each thread that prepares batches finish the one at hand, and wait for it."""
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            thread._max_len = 0  # the batch at hand is the last
            with thread._queue.mutex:
                thread._queue.maxsize = math.inf
                thread._queue.not_full.notify_all()
            thread.join(PATIENCE)
