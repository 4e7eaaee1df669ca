"""Ctrl-C ends in a traceback, and so does a folder for checkpoints that cannot be written to.

So it is in all versions of fairseq. Unnecessary once its ``main`` catches both.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from fairseq import checkpoint_utils


def install() -> None:
    """Have a training that begins look at its folder, and say what becomes of it when interrupted."""
    begin = checkpoint_utils.verify_checkpoint_directory

    @functools.wraps(begin)
    def verify_checkpoint_directory(save_dir: str) -> None:
        try:
            begin(save_dir)  # called by the first worker as a training begins
        except OSError as error:
            raise SystemExit(f"error: cannot write to --save-dir {save_dir}: {error.strerror}") from None
        logging.raiseExceptions = False  # a log file on a full disk would give a traceback for each line
        sys.excepthook = _reporting_interrupts(save_dir, sys.excepthook)

    checkpoint_utils.verify_checkpoint_directory = verify_checkpoint_directory


def _reporting_interrupts(save_dir: str, otherwise: Callable) -> Callable:
    def hook(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            return otherwise(kind, error, trace)
        begun = any(Path(save_dir).glob("checkpoint_last*.pt"))
        next_time = f"resumes from the last checkpoint in {save_dir}" if begun else "starts from scratch"
        print(f"interrupted; the same command, given again, {next_time}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not by the interpreter's own end, where a thread of torch's may abort.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

    return hook
