"""Reads a checkpoint that anyone may have written: as plain data, validated, and without fairseq.

``weights_only`` is never turned off, because unpickling can run code. It is not sufficient: its result need
not be plain data (:mod:`.plain_data`), and fairseq evaluates some settings as Python and opens the files that
others name (:mod:`.hostile_settings`). The latter holds for safetensors files, too.
"""

import argparse
import errno
import os
import re
from collections.abc import Collection
from pathlib import Path

import torch

from ..eight_bits import restored
from ..errors import UserError
from ..io import file_version
from ..safetensors_checkpoints import SUFFIX, read_safetensors
from .hostile_settings import check_history, check_settings
from .plain_data import plain_state
from .plain_numpy import allow_numpy
from .torch_archives import is_archive

# Types in fairseq's checkpoints other than plain data.
torch.serialization.add_safe_globals([argparse.Namespace])
allow_numpy()

OPTIMIZER = "last_optimizer_state"  # most of a checkpoint, which only training needs
ATTEMPTS = 3  # at reading a file that is replaced meanwhile, as by a training


class Unreadable(UserError):
    """A checkpoint that the system could not read; it may be whole, so it must not be replaced."""


def read_checkpoint(path: str | Path, leave_out: Collection[str] = ()) -> dict:
    """Read a fairseq checkpoint as plain data on the CPU, with settings that are safe to use.

    Matrices in 8 bits (:mod:`~user_dir.eight_bits`) become what they stand for. The result has memory of its
    own: whatever happens to the file later does not change it.

    Args:
        path: the checkpoint.
        leave_out: parts that are checked but not returned, which saves memory.

    Raises:
        Unreadable: the system refuses, for example for lack of permission or memory, or the file is being
            written.
        UserError: the file is missing, corrupt, of another program, or contains more than plain data.
    """
    path = Path(path)
    for _ in range(ATTEMPTS):
        before = file_version(path)
        try:
            state = _read(path, leave_out)
        except UserError:
            if file_version(path) == before:
                raise
            continue
        if file_version(path) == before:
            return state
    raise Unreadable(f"{path} changes while it is read; try again when nothing writes to it")


def _read(path: Path, leave_out: Collection[str]) -> dict:
    size = 0
    try:
        if not path.is_file():
            raise UserError(
                f"{path} is a folder, not a checkpoint" if path.is_dir() else f"no checkpoint {path}"
            )
        size = path.stat().st_size
        # Mapped, so that tensors cannot claim more than the file has; plain_state copies them.
        if path.suffix == SUFFIX:
            mapped, state = True, read_safetensors(path)
        else:
            mapped = is_archive(path)
            state = torch.load(str(path), map_location="cpu", weights_only=True, mmap=mapped)
    except UserError:
        raise
    except Exception as error:  # a corrupt file can raise any exception
        reason = _refusal(error, size)
        if reason is not None:
            raise Unreadable(
                f"{path} cannot be read: {reason}; it may be whole, so remove the cause and try again"
            ) from None
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found:
            raise UserError(
                f"{path} is refused: besides plain data it holds {found.group(1)}, which could run code"
            ) from None
        raise UserError(f"{path} is not a checkpoint, or is cut short") from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path} is not a checkpoint that fairseq wrote: it has no model")
    if not all(isinstance(name, str) for name in state["model"]):
        raise UserError(f"{path} is not a checkpoint that fairseq wrote: its parameters have no names")
    state = restored(plain_state(state, str(path), size, mapped=mapped, leave_out=leave_out), path)
    check_settings(path, state)
    check_history(path, state)
    return state


def _refusal(error: BaseException | None, size: int) -> str | None:
    """Why the system could not read a file of ``size`` bytes; None if the file itself is to blame."""
    while error is not None:
        number, text = None, str(error)
        if isinstance(error, MemoryError):
            number = errno.ENOMEM
        elif isinstance(error, OSError):
            number = error.errno
        elif isinstance(error, RuntimeError):  # torch's C++ gives the number in the message alone
            found = _SYSTEM_ERROR.search(text)
            claimed = re.search(r"tried to allocate (\d+) bytes", text)
            if found and (claimed is None or int(claimed[1]) <= size):  # a corrupt file may claim any size
                number = int(found[1])
        if number not in (None, errno.EINVAL):  # EINVAL: a corrupt file leads to an invalid offset
            return os.strerror(number)
        error = error.__context__
    return None


_SYSTEM_ERROR = re.compile(
    r"(?:unable to \w+ |\w+ file failed because |DefaultCPUAllocator: ).*?"
    r"(?:\(|errno |Error code )(\d+)(?:\)$| on | \()",
    re.DOTALL,
)


def require_finite(parameters: dict, what: str) -> None:
    """Raise UserError, about ``what``, unless all parameters are floating-point tensors of finite numbers.

    A single integer is accepted: it is a counter, or the version of a module such as adaptive softmax. So is
    any ``_float_tensor``: fairseq keeps one number of uninitialised memory under this name, for its dtype.
    """
    for name, value in parameters.items():
        if not isinstance(value, torch.Tensor):
            raise UserError(f"{what} is not a checkpoint that fairseq wrote: its {name} is not a tensor")
        if not value.is_floating_point() and value.numel() != 1:
            kind = str(value.dtype).removeprefix("torch.")
            raise UserError(
                f"{what} is unusable: its {name} has the dtype {kind}, which parameters never have"
            )
        if name.rpartition(".")[2] != "_float_tensor" and not torch.isfinite(value).all():
            raise UserError(
                f"{what} is unusable: its {name} has values that are not finite, as when training "
                "diverged; use an earlier checkpoint"
            )
