"""Training that is killed, interrupted, or finds no room on the disk: fairseq's functions for it, wrapped.

fairseq copies each checkpoint to ``checkpoint_last.pt`` in place: killed in the midst, a run could not go on.
Given again, the command of a finished run makes one update more. What the file system refuses ends in pages
of traceback or, in TensorBoard's thread, in a run that waits for ever. A run that has done all it was to do
can still abort, over the thread that prepares batches.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.data.iterators import BackgroundConsumer
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar

from .checkpoints import save_checkpoint, whole_checkpoints
from .errors import UserError, ending_the_run
from .files import copy_file

logger = logging.getLogger(__name__)

ATTEMPTS, PAUSE = 3, 2.5  # how often and after how many seconds fairseq writes a checkpoint again
PATIENCE = 30  # seconds for a batch that is being prepared as a run ends

_fairseq_save = checkpoint_utils.torch_persistent_save
_fairseq_copy = PathManager.copy
_fairseq_load = checkpoint_utils.load_checkpoint_to_cpu
_fairseq_resume = checkpoint_utils.load_checkpoint
_fairseq_begin = checkpoint_utils.verify_checkpoint_directory
_fairseq_log = progress_bar.TensorboardProgressBarWrapper._log_to_tensorboard


def guard_training() -> None:
    """Put the functions below in the place of fairseq's."""
    checkpoint_utils.torch_persistent_save = _save
    PathManager.copy = staticmethod(_copy)
    checkpoint_utils.load_checkpoint_to_cpu = _load
    checkpoint_utils.load_checkpoint = _resume
    checkpoint_utils.verify_checkpoint_directory = _begin
    progress_bar.TensorboardProgressBarWrapper._log_to_tensorboard = _log_to_tensorboard
    atexit.register(_end_prefetching)


# ------------------------------------------------------------------------------ checkpoints


def _save(state: dict, filename: str, async_write: bool = False) -> None:
    if async_write or not PathManager.supports_rename(filename):
        _fairseq_save(state, filename, async_write=async_write)
    else:
        _insist(lambda: save_checkpoint(state, filename))


def _copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    if PathManager.path_requires_pathmanager(src_path) or not PathManager.supports_rename(dst_path):
        return _fairseq_copy(src_path, dst_path, overwrite=overwrite)
    _insist(lambda: copy_file(src_path, dst_path))
    return True


def _insist(write: Callable[[], None]) -> None:
    """Write, again where the file system refuses, as networks do at times; then end the run.

    To train on for days without being able to save would be worse.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return write()
        except UserError as error:
            logger.warning("%s; trying again in %g seconds", error, PAUSE)
            time.sleep(PAUSE)
    with ending_the_run("; what was saved before is whole: make room, and give the same command again"):
        write()


def _load(path: str, *args, **kwargs) -> dict:
    try:
        return _fairseq_load(path, *args, **kwargs)
    except UserError:
        with ending_the_run(_way_on(Path(path))):
            raise


def _way_on(broken: Path) -> str:
    """What to do about a broken checkpoint that training was to go on from."""
    if not broken.name.startswith("checkpoint_last"):
        return ""
    others = (path for path in broken.parent.glob("checkpoint*.pt") if path != broken)
    for path, state in whole_checkpoints(others):
        if state.get("last_optimizer_state") is not None:
            return f"; copy {path}, the latest whole one, over it, and give the same command again"
    return "; there is no whole one beside it: remove it to train anew"


def _resume(cfg, trainer, **iterator):
    """See fairseq; ends the command where nothing is left to do, instead of making an update more."""
    restored = _fairseq_resume(cfg, trainer, **iterator)
    updates, limit = trainer.get_num_updates(), trainer.cfg.optimization.max_update
    if limit and limit <= updates:
        logger.info("nothing to train: %d updates are made, and --max-update is %d", updates, limit)
        raise SystemExit(0)
    return restored


# ------------------------------------------------------------------------------ the run


def _begin(save_dir: str) -> None:
    """See fairseq, whose first worker calls it as a training begins."""
    try:
        _fairseq_begin(save_dir)
    except OSError as error:
        raise SystemExit(f"error: cannot write to --save-dir {save_dir}: {error.strerror}") from None
    logging.raiseExceptions = False  # else a log file on a full disk gives a traceback for each of its lines
    sys.excepthook = _telling_of_interrupts(save_dir, sys.excepthook)
    threading.excepthook = _ending_with_tensorboard(threading.excepthook)


def _telling_of_interrupts(save_dir: str, otherwise: Callable) -> Callable:
    def hook(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            return otherwise(kind, error, trace)
        begun = any(Path(save_dir).glob("checkpoint_last*.pt"))
        goes_on = f"goes on from the last checkpoint in {save_dir}" if begun else "starts anew"
        print(f"interrupted; the same command, given again, {goes_on}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not by the interpreter's own end, where a thread of torch's may abort.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

    return hook


def _end_prefetching() -> None:
    """End the threads that prepare batches, where updates ended in the midst of an epoch.

    The interpreter does not wait for them, and takes itself away from under them: one that comes back from an
    operation of torch's then aborts the process, which has done its work, with status 134.
    """
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            thread._max_len = 0  # the batch at hand is the last
            with thread._queue.mutex:
                thread._queue.maxsize = math.inf
                thread._queue.not_full.notify_all()
            thread.join(PATIENCE)


def _log_to_tensorboard(bar, *args, **kwargs) -> None:
    try:
        _fairseq_log(bar, *args, **kwargs)
    except OSError as error:
        _end_without_tensorboard(error)


def _ending_with_tensorboard(otherwise: Callable) -> Callable:
    """tensorboardX writes in a thread; should it die, the next event would wait for it for ever."""

    def hook(args):
        if isinstance(args.exc_value, OSError) and "tensorboard" in type(args.thread).__module__:
            _end_without_tensorboard(args.exc_value)
        otherwise(args)

    return hook


def _end_without_tensorboard(error: OSError) -> None:
    """At once: tensorboardX closes its files as the interpreter ends, which would fail again."""
    reason = f"error: cannot write to --tensorboard-logdir: {error.strerror}"
    print(f"{reason}; the same command, given again, goes on", file=sys.stderr, flush=True)
    os._exit(1)
