"""Reading a checkpoint from an untrusted source with fairseq can run code or open files.

Here a checkpoint is rebuilt from plain data and validated (:mod:`.checkpoint_files`) before fairseq uses its
settings. All versions of fairseq are affected; PyTorch before 2.6 unpickled anything, and since then refuses
fairseq's own checkpoints. Unnecessary once fairseq reads settings as data and evaluates none.
"""

from contextlib import nullcontext
from contextvars import ContextVar
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ..errors import UserError, as_checkpoint_error
from .checkpoint_files import OPTIMIZER, read_checkpoint
from .hostile_settings import without_files
from .installing import around

_left_out: ContextVar[tuple[str, ...]] = ContextVar("_left_out", default=())


class _TorchThatChecks:
    """Replaces ``torch`` in fairseq's ``checkpoint_utils``; ``load`` calls :func:`read_checkpoint`.

    The file is read once, so fairseq uses exactly what was checked.
    """

    def __getattr__(self, name: str):
        return getattr(torch, name)

    @staticmethod
    def load(file, *args, **kwargs) -> dict:
        return without_files(read_checkpoint(getattr(file, "name", file), leave_out=_left_out.get()))


def install() -> None:
    """Let fairseq read checkpoints here: all commands, and ``from_pretrained``, use ``checkpoint_utils``."""
    checkpoint_utils.torch = _TorchThatChecks()


@around(checkpoint_utils, "load_checkpoint_to_cpu")
def load_checkpoint_to_cpu(load, path, *args, **kwargs):
    """Name the checkpoint whose settings do not work."""
    local = Path(PathManager.get_local_path(path))
    if local.exists() and not local.is_file():  # reading a pipe would block
        raise UserError(f"{path} is not a file")
    with as_checkpoint_error(path) if local.exists() else nullcontext():
        return load(path, *args, **kwargs)


@around(checkpoint_utils, "load_model_ensemble_and_task")
@around(checkpoint_utils, "load_pretrained_component_from_model")
def load_model(load, *args, **kwargs):
    """Load a model without the state of the optimizer; name a file that is not there."""
    token = _left_out.set((OPTIMIZER,))
    try:
        return load(*args, **kwargs)
    except OSError as error:
        _, found, name = str(error).partition("Model file not found: ")
        if not found:
            raise
        raise UserError(f"no checkpoint {name}") from None
    finally:
        _left_out.reset(token)
