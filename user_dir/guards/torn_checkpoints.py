"""A run killed while writing a checkpoint, or out of disk space, leaves a torn checkpoint and cannot resume.

fairseq (0.12.2 and later) overwrites ``checkpoint_last.pt`` in place, and prints pages of traceback if the
file system fails. Unnecessary once fairseq writes to a temporary file, syncs and renames it.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ..checkpoints import save_checkpoint, whole_checkpoints
from ..errors import UserError, exit_on_user_error
from ..io import copy_file
from .hostile_checkpoints import OPTIMIZER, Unreadable
from .untyped_settings import WrongOverride

logger = logging.getLogger(__name__)

ATTEMPTS, PAUSE = 3, 2.5  # attempts to write a checkpoint, and seconds between them


def install() -> None:
    """Write and copy checkpoints atomically, and suggest a complete one in place of a torn one."""
    fairseq_save, fairseq_copy = checkpoint_utils.torch_persistent_save, PathManager.copy
    read = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(fairseq_save)
    def save(state: dict, filename: str, async_write: bool = False) -> None:
        if async_write or not PathManager.supports_rename(filename):
            fairseq_save(state, filename, async_write=async_write)
        else:
            _insist(lambda: save_checkpoint(state, filename))

    @functools.wraps(fairseq_copy)
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if PathManager.path_requires_pathmanager(src_path) or not PathManager.supports_rename(dst_path):
            return fairseq_copy(src_path, dst_path, overwrite=overwrite)
        _insist(lambda: copy_file(src_path, dst_path))
        return True

    @functools.wraps(read)
    def load(path: str, *args, **kwargs) -> dict:
        try:
            return read(path, *args, **kwargs)
        except WrongOverride:
            raise
        except UserError as error:  # one that cannot be read now may be whole, so it gets no other remedy
            with exit_on_user_error("" if isinstance(error, Unreadable) else remedy(Path(path))):
                raise

    begin = checkpoint_utils.verify_checkpoint_directory

    @functools.wraps(begin)
    def verify_checkpoint_directory(save_dir: str) -> None:
        for torn in Path(save_dir).glob("checkpoint*.pt.*.tmp"):  # left by killed runs
            torn.unlink(missing_ok=True)
        begin(save_dir)

    checkpoint_utils.verify_checkpoint_directory = verify_checkpoint_directory
    checkpoint_utils.torch_persistent_save = save
    PathManager.copy = staticmethod(copy)
    checkpoint_utils.load_checkpoint_to_cpu = load


def _insist(write: Callable[[], None]) -> None:
    """Write, retrying on errors, which network file systems cause occasionally; then end the run.

    Training for days without being able to save would be worse.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return write()
        except UserError as error:
            logger.warning("%s; trying again in %g seconds", error, PAUSE)
            time.sleep(PAUSE)
    with exit_on_user_error("; earlier checkpoints are complete: make room and run the same command again"):
        write()


def remedy(broken: Path) -> str:
    """Advice for a corrupt checkpoint that training should resume from."""
    if not broken.name.startswith("checkpoint_last"):
        return ""
    others = (path for path in broken.parent.glob("checkpoint*.pt") if path != broken)
    try:
        for path, state in whole_checkpoints(others):
            if state[OPTIMIZER] is not None:
                newest = f"{path}, the latest complete checkpoint"
                return f"; copy {newest}, over it and run the same command again"
    except Unreadable as error:
        return f"; {error}"
    return "; no other checkpoint in its folder is complete: remove it to train from scratch"
