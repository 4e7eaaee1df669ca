"""A completed run aborts with status 134.

fairseq (0.12.2 and later) prepares batches in a daemon thread. If updates end in the middle of an epoch, the
interpreter exits without waiting for it, and the thread aborts the process when it returns from a PyTorch
operation. Unnecessary once fairseq joins that thread.
"""

import atexit
import math
import threading

from fairseq.data.iterators import BackgroundConsumer

PATIENCE = 30  # seconds to wait for the batch being prepared


def install() -> None:
    """End these threads before the interpreter exits."""
    atexit.register(end_prefetching)


def end_prefetching() -> None:
    """Let each thread that prepares batches finish its current batch, and wait for it."""
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            thread._max_len = 0  # makes the current batch the last one
            with thread._queue.mutex:
                thread._queue.maxsize = math.inf
                thread._queue.not_full.notify_all()
            thread.join(PATIENCE)
