"""Training hangs if TensorBoard's files cannot be written.

tensorboardX (2.6 and before) writes in its own thread. If that thread dies, for instance of a full disk, the
next event waits forever for it. Unnecessary once tensorboardX raises the error in the logging thread.
"""

import os
import sys
import threading
from collections.abc import Callable

from fairseq import checkpoint_utils
from fairseq.logging.progress_bar import TensorboardProgressBarWrapper

from .installing import around


@around(TensorboardProgressBarWrapper, "_log_to_tensorboard")
def log_to_tensorboard(log, self, *args, **kwargs) -> None:
    """End the run with an error message where the log cannot be begun."""
    try:
        log(self, *args, **kwargs)
    except OSError as error:
        _end(error)


@around(checkpoint_utils, "verify_checkpoint_directory")
def watch_threads(verify, save_dir: str) -> None:
    """End the run with an error message where the thread that writes the log dies."""
    verify(save_dir)
    threading.excepthook = _watching(threading.excepthook)


def _watching(otherwise: Callable) -> Callable:
    def hook(args):
        if isinstance(args.exc_value, OSError) and "tensorboard" in type(args.thread).__module__:
            _end(args.exc_value)
        otherwise(args)

    return hook


def _end(error: OSError) -> None:
    """Exit at once, because tensorboardX closes its files at interpreter exit, which would fail again."""
    reason = f"error: cannot write to --tensorboard-logdir: {error.strerror}"
    print(f"{reason}; the same command, given again, resumes the training", file=sys.stderr, flush=True)
    os._exit(1)
