"""Training hangs if TensorBoard's files cannot be written.

tensorboardX (2.6 and before) writes in its own thread. If that thread dies, for instance of a full disk, the
next event waits forever for it. Unnecessary once tensorboardX raises the error in the logging thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from fairseq import checkpoint_utils
from fairseq.logging import progress_bar


def install() -> None:
    """End the run with an error message instead."""
    bar = progress_bar.TensorboardProgressBarWrapper
    log, begin = bar._log_to_tensorboard, checkpoint_utils.verify_checkpoint_directory

    def log_to_tensorboard(self, *args, **kwargs) -> None:
        try:
            log(self, *args, **kwargs)
        except OSError as error:
            _end(error)

    def verify_checkpoint_directory(save_dir: str) -> None:
        begin(save_dir)
        threading.excepthook = _watching(threading.excepthook)

    bar._log_to_tensorboard = log_to_tensorboard
    checkpoint_utils.verify_checkpoint_directory = verify_checkpoint_directory


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
