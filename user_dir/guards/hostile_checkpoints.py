"""Reading a checkpoint from an untrusted source with fairseq can run code or open files.

Here a checkpoint is rebuilt from plain data and validated before fairseq uses its settings.

``weights_only`` is never turned off, because unpickling can run code. It is not sufficient: its result need
not be plain data (:mod:`.plain_data`), fairseq evaluates some settings as Python (:data:`EVALUATED`, which
must be literals here), and opens the files named by others (removed by :mod:`.file_settings`). All
versions of fairseq are affected; PyTorch before 2.6 unpickled anything, and since then refuses fairseq's own
checkpoints. Unnecessary once fairseq reads settings as data and evaluates none.
"""

from __future__ import annotations

import argparse
import ast
import errno
import functools
import os
import re
import struct
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ..errors import UserError
from ..io import file_version
from .file_settings import without_files
from .plain_data import plain_state
from .plain_numpy import allow_numpy

# Settings of all fairseq models, tasks, criterions and optimizers; a test searches fairseq's source for them.
EVALUATED = {
    "adafactor_eps",
    "adam_betas",
    "adamax_betas",
    "lamb_betas",
    "wer_args",
    "character_filters",
    "adaptive_input_cutoff",
    "adaptive_softmax_cutoff",
    "left_pad_source",
    "left_pad_target",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention",
    "decoder_attention",
    "self_attention",
    "gated_attention",
    "project_input",
    "downsample",
    "pretrained",
    "conv_aggregator_layers",
    "conv_feature_layers",
    "feature_encoder_spec",
    "xformers_att_config",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
    "pipeline_balance",
    "pipeline_encoder_balance",
    "pipeline_decoder_balance",
    "pipeline_devices",
    "pipeline_encoder_devices",
    "pipeline_decoder_devices",
}
# Types in fairseq's checkpoints other than plain data.
torch.serialization.add_safe_globals([argparse.Namespace])
allow_numpy()

MAX_LITERAL = 10_000  # maximum length of a literal and of its value
OPTIMIZER = "last_optimizer_state"  # most of a checkpoint, which only training needs
MAX_LAYERS = 1_000
ATTEMPTS = 3  # at reading a file that is replaced meanwhile, as by a training


def literal(text: str):
    """Evaluate a Python literal, possibly with + - and *, such as ``[(512, 3)] * 20``.

    Raises:
        ValueError: it is not a literal, or has more than 10,000 values.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval") if len(text) <= MAX_LITERAL else None
        if tree is not None:
            return _value_of(tree.body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError):
        pass
    raise ValueError(f"{_short(text)} is not a literal")


def _value_of(node: ast.expr):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        values = list(map(_value_of, node.elts))
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict) and all(node.keys):
        return {_value_of(key): _value_of(value) for key, value in zip(node.keys, node.values)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value_of(node.operand)
        return -value if isinstance(node.op, ast.USub) else +value
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        left, right = _value_of(node.left), _value_of(node.right)
        if isinstance(node.op, ast.Mult):
            for sequence, count in ((left, right), (right, left)):
                if hasattr(sequence, "__len__") and len(sequence) * count > MAX_LITERAL:
                    raise ValueError("too long")
            return left * right
        return left + right if isinstance(node.op, ast.Add) else left - right
    raise ValueError("not a literal")


def is_literal(value) -> bool:
    """Whether evaluating a setting as Python gives plain data of reasonable size without side effects."""
    if isinstance(value, (list, tuple)):
        return all(map(is_literal, value))
    if not isinstance(value, str):  # eval also accepts bytes and other buffers
        return value is None or isinstance(value, (bool, int, float))
    try:
        literal(value)
    except ValueError:
        return False
    return True


class Unreadable(UserError):
    """A checkpoint that the system could not read; it may be whole, so it must not be replaced."""


def read_checkpoint(path: str | Path, leave_out: Collection[str] = ()) -> dict:
    """Read a fairseq checkpoint as plain data on the CPU, with settings that are safe to use.

    The result has memory of its own: whatever happens to the file later does not change it.

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
        zipped = is_archive(path)
        # Mapped, so that tensors cannot claim more than the file has; plain_state copies them.
        state = torch.load(str(path), map_location="cpu", weights_only=True, mmap=zipped)
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
    state = plain_state(state, str(path), size, mapped=zipped, leave_out=leave_out)
    _check_settings(path, state)
    _check_history(path, state)
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


def is_archive(path: Path) -> bool:
    """Whether torch reads the file as a zip archive.

    Raises:
        UserError: reading the archive could take more memory than the file has bytes.
        BadZipFile: it is cut short.
    """
    strange = UserError(f"{path} is refused: its list of contents is not as PyTorch writes it")
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":  # as torch decides
            return False
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 98, 0))
        tail = file.read().rjust(98, b"\0")
        zip64, locator, end = tail[:56], tail[56:76], tail[76:]
        if end[:4] != b"PK\x05\x06" or end[-2:] != bytes(2):
            raise zipfile.BadZipFile
        # Python reads the list that ends where these records begin, torch the one at the offset in them.
        position = size - len(end)
        count, length, offset = struct.unpack("<10xHLL2x", end)
        if locator[:4] == b"PK\x06\x07":
            position = size - len(tail)
            count, length, offset = struct.unpack("<32xQQQ", zip64)
            if zip64[:4] != b"PK\x06\x06" or struct.unpack("<8xQ4x", locator) != (position,):
                raise strange
        if offset + length != position:
            raise strange
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
        if len(entries) != count:
            raise strange
        for entry in entries:
            file.seek(entry.header_offset)
            header = file.read(30)
            if len(header) < 30 or header[:4] != b"PK\x03\x04":
                raise strange
            if (entry.compress_type, *struct.unpack("<8xH20x", header)) != (zipfile.ZIP_STORED,) * 2:
                raise UserError(f"{path} is refused: it is compressed, which no checkpoint of PyTorch's is")
        unpacked = sum(max(entry.file_size, entry.compress_size) for entry in entries)
        if unpacked > size:
            raise UserError(f"{path} is refused: it claims to hold {unpacked} bytes, but has {size}")
    return True


def require_finite(parameters: dict, what: str) -> None:
    """Raise UserError unless all ``parameters`` are floating-point tensors of finite numbers.

    A single integer is accepted: it is a counter, or the version of a module such as adaptive softmax. So is
    any ``_float_tensor``: fairseq keeps one number of uninitialised memory under this name, for its dtype.

    Args:
        parameters: by name.
        what: the checkpoint, for the error message.
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


@contextmanager
def as_checkpoint_error(checkpoint: str | Path) -> Iterator[None]:
    """Convert errors caused by a checkpoint's settings to UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{checkpoint} has settings that do not work: {type(error).__name__} {reason}"
        ) from error


def _check_settings(path: Path, state: dict) -> None:
    cfg, args = state.get("cfg"), state.get("args")
    sections = isinstance(cfg, dict) and all(
        isinstance(cfg.get(name), (dict, argparse.Namespace)) and _of(cfg[name]) for name in ("model", "task")
    )
    if not sections and (cfg is not None or not isinstance(args, argparse.Namespace)):
        raise UserError(f"{path} is not a checkpoint that fairseq wrote: it has no settings")
    for name, value in _settings([cfg, args]):
        if name in EVALUATED and not is_literal(value):
            raise UserError(
                f"{path} is refused: its {name} is {_short(value)}, which fairseq would run as Python"
            )
        if isinstance(value, str) and "${" in value:  # it could resolve to anything
            raise UserError(f"{path} is refused: its {name} is {_short(value)}, which fairseq never writes")
        if name.endswith("layers") and type(value) is int and value > MAX_LAYERS:
            raise UserError(f"{path} is refused: its {name} is {value}; the limit is {MAX_LAYERS}")


def _settings(value) -> Iterator[tuple[str, object]]:
    """All names in nested settings with their values; items of lists are named "settings"."""
    if isinstance(value, (dict, argparse.Namespace)):
        for name, inner in _of(value).items():
            yield name, inner
            yield from _settings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield "settings", inner
            yield from _settings(inner)


def _of(settings: dict | argparse.Namespace) -> dict:
    return vars(settings) if isinstance(settings, argparse.Namespace) else settings


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _check_history(path: Path, state: dict) -> None:
    """Check the training history that fairseq relies on, if there is one."""
    history = state.get("optimizer_history", [{}])
    extra = state.get("extra_state", {})
    whole = isinstance(history, list) and history and all(isinstance(each, dict) for each in history)
    updates = history[-1].get("num_updates", 0) if whole else None
    if not isinstance(updates, int) or updates < 0 or not isinstance(extra, dict):
        raise UserError(
            f"{path} is not a checkpoint that fairseq wrote: it does not tell how far training was"
        )


class _TorchThatChecks:
    """Replaces ``torch`` in fairseq's ``checkpoint_utils``; ``load`` calls :func:`read_checkpoint`.

    The file is read once, so fairseq uses exactly what was checked.
    """

    def __getattr__(self, name: str):
        return getattr(torch, name)

    @staticmethod
    def load(file, *args, **kwargs) -> dict:
        return without_files(read_checkpoint(getattr(file, "name", file), leave_out=_left_out.get()))


_left_out: ContextVar[tuple[str, ...]] = ContextVar("_left_out", default=())


def _without_optimizer(load):
    """A function of fairseq's that loads a model; it no longer reads the state of the optimizer."""

    @functools.wraps(load)
    def leaner(*args, **kwargs):
        token = _left_out.set((OPTIMIZER,))
        try:
            return load(*args, **kwargs)
        finally:
            _left_out.reset(token)

    return leaner


def install() -> None:
    """Make fairseq load only checked checkpoints.

    All fairseq commands, and ``from_pretrained``, read checkpoints with functions of ``checkpoint_utils``.
    """
    checkpoint_utils.torch = _TorchThatChecks()
    load = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(load)
    def checked(path, *args, **kwargs):
        local = Path(PathManager.get_local_path(path))
        if local.exists() and not local.is_file():  # reading a pipe would block
            raise UserError(f"{path} is not a file")
        with as_checkpoint_error(path) if local.exists() else nullcontext():
            return load(path, *args, **kwargs)

    checkpoint_utils.load_checkpoint_to_cpu = checked
    for name in ("load_model_ensemble_and_task", "load_pretrained_component_from_model"):
        setattr(checkpoint_utils, name, _without_optimizer(getattr(checkpoint_utils, name)))
