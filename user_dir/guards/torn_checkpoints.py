"""A run killed while it writes a checkpoint, or out of disk space, leaves a torn one and cannot resume.

fairseq (0.12.2 and later) copies each checkpoint over ``checkpoint_last.pt`` in place, and where the file
system refuses to write it ends in pages of traceback. Unnecessary once fairseq writes beside, syncs and
renames.
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
from ..errors import UserError, ending_the_run
from ..io import copy_file

logger = logging.getLogger(__name__)

ATTEMPTS, PAUSE = 3, 2.5  # how often, and after how many seconds, a refused checkpoint is written again


def install() -> None:
    """Write and copy checkpoints whole or not at all, and name a whole one where a torn one is to be read."""
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
        except UserError:
            with ending_the_run(_remedy(Path(path))):
                raise

    begin = checkpoint_utils.verify_checkpoint_directory

    @functools.wraps(begin)
    def verify_checkpoint_directory(save_dir: str) -> None:
        for torn in Path(save_dir).glob("checkpoint*.pt.*.tmp"):  # of runs that were killed
            torn.unlink(missing_ok=True)
        begin(save_dir)

    checkpoint_utils.verify_checkpoint_directory = verify_checkpoint_directory
    checkpoint_utils.torch_persistent_save = save
    PathManager.copy = staticmethod(copy)
    checkpoint_utils.load_checkpoint_to_cpu = load


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


def _remedy(broken: Path) -> str:
    """What to do about a broken checkpoint that training was to resume from."""
    if not broken.name.startswith("checkpoint_last"):
        return ""
    others = (path for path in broken.parent.glob("checkpoint*.pt") if path != broken)
    for path, state in whole_checkpoints(others):
        if state.get("last_optimizer_state") is not None:
            return f"; copy {path}, the latest whole one, over it, and give the same command again"
    return "; there is no whole one beside it: remove it to train from scratch"
