"""Loading, saving, finding and averaging of checkpoints."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from . import fingerprints
from .checkpoint_settings import AVERAGED, architecture_settings, model_name, num_updates
from .errors import UserError, as_checkpoint_error
from .guards.checkpoint_files import OPTIMIZER, Unreadable, read_checkpoint, require_finite
from .guards.hostile_settings import without_files
from .io import atomic_write, durable

logger = logging.getLogger(__name__)


def load_checkpoint(path: str | Path, *, optimizer: bool = False) -> dict:
    """Load a translation model's checkpoint to the CPU, with ``cfg`` filled in for older ones.

    Args:
        path: the checkpoint.
        optimizer: also load the state of the optimizer; else it is None.

    Raises:
        UserError: the file is missing, corrupt, of another program, would run code, or contains numbers that
            are not finite.
    """
    state = {OPTIMIZER: None, **read_checkpoint(path, leave_out=() if optimizer else (OPTIMIZER,))}
    if state.get("cfg") is None:
        # Written before fairseq had cfg. Without args, fairseq uses the cfg made here.
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from omegaconf import OmegaConf

        with as_checkpoint_error(path):
            cfg = convert_namespace_to_omegaconf(state["args"])
            state["cfg"] = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
        state["args"] = None
    if not isinstance(model_name(state), str):
        raise UserError(f"{path} is not a checkpoint that fairseq wrote: its settings name no architecture")
    require_finite(state["model"], str(path))
    return state


def save_checkpoint(state: dict, path: str | Path) -> None:
    """Write a checkpoint to a temporary file, then rename it."""
    with atomic_write(path) as beside, beside.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # raised by torch while it handles the actual error
            cause = error.__context__
            if not isinstance(cause, (OSError, KeyboardInterrupt)):
                cause = OSError(str(error))
            raise cause from None
        durable(file)


# The settings that say how a model was trained; the others are about where, and about other commands.
_TRAINING = ("common", "dataset", "optimization", "checkpoint", "ema")
_TRAINING += ("task", "criterion", "optimizer", "lr_scheduler")


def for_inference(state: dict) -> dict:
    """What translation needs of a checkpoint, and how it was trained; without optimizer state and file names.

    Equal parameters, such as tied embeddings that were averaged, are stored once.

    Args:
        state: from :func:`load_checkpoint`; it is not changed.
    """
    cfg = copy.deepcopy({name: state["cfg"][name] for name in ("model", *_TRAINING) if name in state["cfg"]})
    processes = (state["cfg"].get("distributed_training") or {}).get("distributed_world_size", 1)
    cfg["distributed_training"] = {"distributed_world_size": processes}  # the rest is about the machines
    epoch = ((state.get("extra_state") or {}).get("train_iterator") or {}).get("epoch", 1)
    kept: dict[tuple, Tensor] = {}
    model = {}
    for name, value in state["model"].items():
        value = value.contiguous()
        content = value.view(-1).view(torch.uint8).numpy() if value.numel() else b""
        key = value.dtype, value.shape, hashlib.sha256(content).digest()
        model[name] = kept.setdefault(key, value.clone())
    return {
        "args": None,
        "cfg": without_files({"cfg": cfg})["cfg"],
        "model": model,
        "optimizer_history": [
            {key: value for key, value in state["optimizer_history"][-1].items() if key != "optimizer"}
        ],
        "extra_state": {"train_iterator": {"epoch": epoch}},
        OPTIMIZER: None,
        **{name: state[name] for name in (fingerprints.KEY, AVERAGED) if name in state},
    }


def whole_checkpoints(paths: Iterable[Path]) -> Iterator[tuple[Path, dict]]:
    """The checkpoints among ``paths`` that can be loaded, with their states, most recently written first.

    Raises:
        Unreadable: the system could not read one, which therefore cannot be said to be corrupt.
    """
    for path in sorted(paths, key=os.path.getmtime, reverse=True):
        try:
            state = load_checkpoint(path, optimizer=True)
        except Unreadable:
            raise
        except UserError:
            continue
        yield path, state


def epoch_checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints checkpointN.pt that fairseq wrote at the ends of epochs, by epoch N."""
    named = ((re.fullmatch(r"checkpoint(\d+)\.pt", file.name), file) for file in folder.iterdir())
    return {int(name.group(1)): file for name, file in named if name}


def last_epoch_checkpoints(folder: str | Path, count: int) -> list[Path]:
    """The ``count`` latest checkpoints checkpointN.pt of ``folder``, by epoch N."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"no checkpoint folder {folder}")
    epochs = epoch_checkpoints(folder)
    if count < 1:
        raise UserError(f"--last-epochs must be positive, not {count}")
    if not epochs:
        raise UserError(
            f"{folder} has no epoch checkpoints (checkpointN.pt); train to the end of an epoch, or name the "
            "checkpoints to average: --path FILE FILE …"
        )
    if len(epochs) < count:
        raise UserError(
            f"{folder} has {len(epochs)} epoch checkpoints (checkpointN.pt), not {count}; give --last-epochs "
            f"{len(epochs)} to average those, or train longer or with a larger checkpoint.keep_last_epochs"
        )
    return [epochs[epoch] for epoch in sorted(epochs)[-count:]]


def last_checkpoints(folder: str | Path, count: int) -> list[Path]:
    """As :func:`last_epoch_checkpoints`, of which ``checkpoint_last.pt`` is one if training went on to it."""
    epochs = last_epoch_checkpoints(folder, count)
    last = Path(folder) / "checkpoint_last.pt"
    if not last.is_file() or num_updates(load_checkpoint(last)) <= num_updates(load_checkpoint(epochs[-1])):
        return epochs
    return [*epochs[1:], last]


def average_checkpoints(paths: list[Path], ema: bool = False) -> dict:
    """Average the parameters of checkpoints, in float64; all else is that of the last of ``paths``.

    There is no state of the optimizer, because that of one checkpoint does not match averaged parameters.
    Counters (integers) are those of the last one. α's are averaged as parameters a. The average of several
    names their updates: see :func:`averaged_updates`. Model settings that differ are logged.

    Args:
        ema: average the moving averages of the parameters that fairseq stores with ``--store-ema``.

    Raises:
        UserError: a checkpoint has no moving average, or one that diverged, or they are of different models
            or vocabularies.
    """
    from tqdm import tqdm

    state, total, previous, updates, settings = None, {}, None, [], {}
    for path in tqdm(paths, desc="averaging", unit="checkpoint", disable=None):
        state = load_checkpoint(path)
        if previous is not None:
            fingerprints.require_equal(state, path, *previous)
        previous = {fingerprints.KEY: state.get(fingerprints.KEY)}, path
        updates.append(num_updates(state))
        before, settings = settings, architecture_settings(state)
        for name in sorted(before.keys() & settings.keys()):
            if before[name] != settings[name]:
                values = f"{before[name]!r} and {settings[name]!r}"
                logger.warning("%s: %s differs from the checkpoint before: %s", path, name, values)
        extra = state.get("extra_state") or {}
        moving = extra.pop("ema", None)
        extra.pop("ema_fp32_params", None)
        if ema:
            if moving is None:
                raise UserError(f"{path} has no moving average of its parameters; train with --store-ema")
            _require_average(moving, state["model"], path)
            state["model"] = moving
        model = state["model"]
        if total and {name: value.shape for name, value in total.items()} != {
            name: value.shape for name, value in model.items() if value.is_floating_point()
        }:
            raise UserError(f"{path} and {paths[0]} are of different models and cannot be averaged")
        for name, value in model.items():
            if value.is_floating_point():
                total[name] = total.get(name, 0) + value.double()
    for name, value in total.items():
        state["model"][name] = (value / len(paths)).to(state["model"][name].dtype)
    return {**state, AVERAGED: updates} if len(paths) > 1 else state


def _require_average(moving, parameters: dict[str, Tensor], path: Path) -> None:
    """Raise UserError unless the moving average in a checkpoint is of its parameters, and finite."""
    what = f"the moving average in {path}"
    if not isinstance(moving, dict) or moving.keys() != parameters.keys():
        raise UserError(f"{what} is unusable: it is not of the checkpoint's parameters; leave out --ema")
    require_finite(moving, what)
    for name, value in moving.items():
        if value.shape != parameters[name].shape:
            raise UserError(f"{what} is unusable: its {name} has another shape than the checkpoint's")
