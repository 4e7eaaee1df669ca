"""A run killed while writing a checkpoint, or out of disk space, leaves a torn checkpoint and cannot resume.

fairseq (0.12.2 and later) overwrites ``checkpoint_last.pt`` in place, and prints pages of traceback if the
file system fails. Unnecessary once fairseq writes to a temporary file, syncs and renames it.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ..checkpoints import save_checkpoint, whole_checkpoints
from ..errors import UserError, exit_on_user_error
from ..io import copy_file
from .checkpoint_files import OPTIMIZER, Unreadable
from .installing import around
from .untyped_settings import WrongOverride

logger = logging.getLogger(__name__)

ATTEMPTS, PAUSE = 3, 2.5  # attempts to write a checkpoint, and seconds between them


@around(checkpoint_utils, "torch_persistent_save")
def save(fairseq_save, state: dict, filename: str, async_write: bool = False) -> None:
    """Write a checkpoint atomically."""
    if async_write or not PathManager.supports_rename(filename):
        fairseq_save(state, filename, async_write=async_write)
    else:
        _insist(lambda: save_checkpoint(state, filename))


@around(PathManager, "copy")
def copy(fairseq_copy, src_path: str, dst_path: str, overwrite: bool = False) -> bool:
    """Copy a checkpoint atomically."""
    if PathManager.path_requires_pathmanager(src_path) or not PathManager.supports_rename(dst_path):
        return fairseq_copy(src_path, dst_path, overwrite=overwrite)
    _insist(lambda: copy_file(src_path, dst_path))
    return True


@around(checkpoint_utils, "load_checkpoint_to_cpu")
def load(read, path: str, *args, **kwargs) -> dict:
    """Suggest a complete checkpoint in place of a torn one."""
    with suggesting_another(Path(path)):
        return read(path, *args, **kwargs)


@around(checkpoint_utils, "verify_checkpoint_directory")
def begin_training(verify, save_dir: str) -> None:
    """Remove what killed runs have left."""
    for torn in Path(save_dir).glob("checkpoint*.pt.*.tmp"):
        torn.unlink(missing_ok=True)
    verify(save_dir)


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


@contextmanager
def suggesting_another(path: Path) -> Iterator[None]:
    """Convert a UserError about a checkpoint to a SystemExit, with what to do if it is corrupt."""
    try:
        yield
    except WrongOverride:
        raise
    except UserError as error:  # one that cannot be read now may be whole, so it gets no other remedy
        raise SystemExit(error.code + ("" if isinstance(error, Unreadable) else _remedy(path))) from None


def _remedy(broken: Path) -> str:
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
