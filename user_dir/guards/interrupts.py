"""Ctrl-C, or a checkpoint folder that is not writable, ends fairseq with a traceback.

All versions of fairseq are affected. Unnecessary once its ``main`` catches both.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from fairseq import checkpoint_utils

from .installing import around


@around(checkpoint_utils, "verify_checkpoint_directory")
def begin_training(verify, save_dir: str) -> None:
    """Check the checkpoint folder when training starts, and report how to resume after an interrupt."""
    try:
        verify(save_dir)  # called by the first worker
    except OSError as error:
        raise SystemExit(f"error: cannot write to --save-dir {save_dir}: {error.strerror}") from None
    logging.raiseExceptions = False  # a full disk would cause a traceback per log line
    sys.excepthook = _reporting_interrupts(save_dir, sys.excepthook)


def _reporting_interrupts(save_dir: str, otherwise: Callable) -> Callable:
    def hook(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            return otherwise(kind, error, trace)
        begun = any(Path(save_dir).glob("checkpoint_last*.pt"))
        next_time = f"resumes from the last checkpoint in {save_dir}" if begun else "starts from scratch"
        print(f"interrupted; the same command, given again, {next_time}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not by the normal exit of the interpreter, during which a thread of torch may abort.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

    return hook
