"""Checkpoints from anywhere: read as plain data, and checked before fairseq acts on what they say.

``weights_only`` is never switched off, since unpickling a file can run code that somebody put there. That is
not all: fairseq evaluates some settings as Python, and builds whatever model, task and criterion a checkpoint
names. :data:`EVALUATED` are those settings; in a checkpoint they must be literals.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from .errors import UserError
from .plain_numpy import allow_numpy

# Of every model, task, criterion and optimizer of fairseq's; a test finds them anew in its source.
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
_LITERAL = (ast.Expression, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Load)
_ARITHMETIC = (ast.UnaryOp, ast.USub, ast.UAdd, ast.BinOp, ast.Add, ast.Sub, ast.Mult)  # [(512, 3)] * 20
_LONGEST = 10_000


def is_literal(value) -> bool:
    """Whether evaluating a setting as Python gives plain data and does nothing else: literals, + and *."""
    if isinstance(value, (list, tuple)):
        return all(map(is_literal, value))
    if not isinstance(value, str):  # what else eval takes: bytes, and whatever has a buffer
        return value is None or isinstance(value, (bool, int, float))
    try:
        tree = ast.parse(value.strip(), mode="eval") if len(value) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return tree is not None and all(isinstance(node, _LITERAL + _ARITHMETIC) for node in ast.walk(tree))


def read_checkpoint(path: str | Path, mmap: bool = False) -> dict:
    """What a checkpoint of fairseq's holds, on the CPU, with settings that are safe to act on.

    Args:
        path: the file.
        mmap: leave the tensors in the file, where its format allows that: enough to look at the rest.

    Raises:
        UserError: the file is missing, broken, of another program, or would run code.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path} is a folder, not a checkpoint" if path.is_dir() else f"no checkpoint {path}")
    try:
        mmap = mmap and zipfile.is_zipfile(path)
        state = torch.load(str(path), map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # a broken file can raise anything
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
    _check_settings(path, state)
    _check_history(path, state)
    return state


def require_finite(parameters: dict, what: str) -> None:
    """Raise a ``UserError`` unless all ``parameters`` are tensors of finite numbers; ``what`` holds them."""
    for name, value in parameters.items():
        if not isinstance(value, torch.Tensor):
            raise UserError(f"{what} is not a checkpoint that fairseq wrote: its {name} is no tensor")
        if not torch.isfinite(value).all():
            raise UserError(
                f"{what} is of no use: its {name} has values that are not finite, as where training "
                "diverged; take an earlier one"
            )


@contextmanager
def told_of(checkpoint: str | Path) -> Iterator[None]:
    """Whatever goes wrong in building what a checkpoint says, which can be anything, is a ``UserError``."""
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
    for name, value in _settings([cfg, args], set()):
        if name in EVALUATED and not is_literal(value):
            raise UserError(
                f"{path} is refused: its {name} is {_short(value)}, which fairseq would run as Python"
            )
        if isinstance(value, str) and "${" in value:  # resolved, it could be anything
            raise UserError(f"{path} is refused: its {name} is {_short(value)}, which fairseq never writes")


def _settings(value, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Every name in nested settings, with what it names; "settings" for what has none."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (dict, argparse.Namespace)):
        for name, inner in _of(value).items():
            yield str(name), inner
            yield from _settings(inner, seen)
    elif isinstance(value, (list, tuple, set)):
        for inner in value:
            yield "settings", inner
            yield from _settings(inner, seen)


def _of(settings: dict | argparse.Namespace) -> dict:
    return vars(settings) if isinstance(settings, argparse.Namespace) else settings


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _check_history(path: Path, state: dict) -> None:
    """What fairseq takes for granted of a training's past, where there is one."""
    history = state.get("optimizer_history", [{}])
    extra = state.get("extra_state", {})
    whole = isinstance(history, list) and history and all(isinstance(each, dict) for each in history)
    updates = history[-1].get("num_updates", 0) if whole else None
    if not isinstance(updates, int) or updates < 0 or not isinstance(extra, dict):
        raise UserError(
            f"{path} is not a checkpoint that fairseq wrote: it does not tell how far training was"
        )


def guard_fairseq() -> None:
    """Let torch load what fairseq puts into a checkpoint, and fairseq load nothing that is not checked.

    All of fairseq's commands, and ``from_pretrained``, read checkpoints by one function; from now on
    :func:`read_checkpoint` goes before it.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])
    allow_numpy()
    load = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(load)
    def checked(path, *args, **kwargs):
        local = Path(PathManager.get_local_path(path))
        if not local.exists():
            return load(path, *args, **kwargs)  # raises what fairseq may be prepared for
        read_checkpoint(local, mmap=True)
        with told_of(path):
            return load(path, *args, **kwargs)

    checkpoint_utils.load_checkpoint_to_cpu = checked
