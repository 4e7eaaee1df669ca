"""Checkpoints: loaded, saved, found in a folder, averaged."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from tqdm import tqdm

from .errors import UserError
from .guards.hostile_checkpoints import blaming, read_checkpoint, require_finite
from .io import durable, written_beside


def load_checkpoint(path: str | Path) -> dict:
    """The state of a translation model's checkpoint, on the CPU, with ``cfg`` filled in for older ones.

    Raises:
        UserError: the file is missing, broken, of another program, would run code, or holds numbers that are
            not finite.
    """
    state = read_checkpoint(path)
    if state.get("cfg") is None:
        # Written before fairseq had cfg. With args gone too, fairseq reads what we make of them.
        with blaming(path):
            cfg = convert_namespace_to_omegaconf(state["args"])
            state["cfg"] = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
        state["args"] = None
    if not isinstance(model_name(state), str):
        raise UserError(f"{path} is not a checkpoint that fairseq wrote: its settings name no architecture")
    require_finite(state["model"], str(path))
    return state


def save_checkpoint(state: dict, path: str | Path) -> None:
    """Write a checkpoint beside its place, then rename it."""
    with written_beside(path) as beside, beside.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # torch's own, as it tidies up after what stopped the writing
            cause = error.__context__
            if not isinstance(cause, (OSError, KeyboardInterrupt)):
                cause = OSError(str(error))
            raise cause from None
        durable(file)


def model_name(state: dict) -> str:
    """The architecture a checkpoint was trained as, for instance ``adaptively_sparse_transformer_tiny``."""
    settings = model_settings(state)
    return settings.get("_name") or settings.get("arch") or "unknown"


def model_settings(state: dict) -> dict:
    """The model's settings of a checkpoint, whichever of fairseq's two ways of training wrote it."""
    return _as_dict(state["cfg"]["model"])


def task_settings(state: dict) -> dict:
    """The task's settings of a checkpoint, the languages among them."""
    return _as_dict(state["cfg"]["task"])


def _as_dict(settings) -> dict:
    return dict(vars(settings) if isinstance(settings, argparse.Namespace) else settings)


def num_updates(state: dict) -> int:
    """How many updates a checkpoint's training had made."""
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def whole_checkpoints(paths: Iterable[Path]) -> Iterator[tuple[Path, dict]]:
    """Those of ``paths`` that can be loaded, with their states; what was written last comes first."""
    for path in sorted(paths, key=os.path.getmtime, reverse=True):
        try:
            state = load_checkpoint(path)
        except UserError:
            continue
        yield path, state


def epoch_checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints checkpointN.pt that fairseq wrote at the ends of epochs, by epoch N."""
    named = ((re.fullmatch(r"checkpoint(\d+)\.pt", file.name), file) for file in folder.iterdir())
    return {int(name.group(1)): file for name, file in named if name}


def last_epoch_checkpoints(folder: str | Path, count: int) -> list[Path]:
    """The ``count`` latest of ``folder``'s checkpoints checkpointN.pt, by epoch N."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"no folder {folder} of checkpoints")
    epochs = epoch_checkpoints(folder)
    if count < 1:
        raise UserError(f"--last-epochs must be positive, not {count}")
    if len(epochs) < count:
        raise UserError(
            f"{folder} has {len(epochs)} epoch checkpoints (checkpointN.pt), not the {count} asked for; "
            "train longer, or with checkpoint.keep_last_epochs at least as large"
        )
    return [epochs[epoch] for epoch in sorted(epochs)[-count:]]


def average_checkpoints(paths: list[Path], ema: bool = False) -> dict:
    """The last of ``paths`` with the mean of the parameters of all, summed in float64.

    Counters (whole numbers) are those of the last. The α's are averaged as the parameters they are.

    Args:
        ema: take of each the moving average of the parameters that fairseq keeps under ``--store-ema``.

    Raises:
        UserError: a checkpoint has no such average, or they are of different models.
    """
    state, total = None, {}
    for path in tqdm(paths, desc="averaging", unit="checkpoint", disable=None):
        state = load_checkpoint(path)
        extra = state.get("extra_state") or {}
        moving = extra.pop("ema", None)
        extra.pop("ema_fp32_params", None)
        if ema:
            if moving is None:
                raise UserError(f"{path} has no moving average of its parameters; train with --store-ema")
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
    # What belongs to one point of one training would be wrong beside averaged parameters.
    state["last_optimizer_state"] = None
    return state
