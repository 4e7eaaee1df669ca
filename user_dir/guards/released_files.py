"""Reads the checkpoint of a release archive without torch, for translation by the search in C++."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..bounded import MAX_CLAIMED
from ..eight_bits import restored
from ..errors import UserError
from ..safetensors_checkpoints import SUFFIX, read_safetensors
from .hostile_settings import check_history, check_settings

ALPHAS = "alphas"
"""Where a release's checkpoint has the α of every head, in ``extra_state``."""


def read_released(path: Path) -> dict | None:
    """A checkpoint with NumPy's arrays; None if it is to be read with torch, which also says what is wrong.

    It is checked as :func:`~user_dir.checkpoints.load_checkpoint` checks it.
    """
    if path.suffix != SUFFIX:
        return None
    try:
        state = read_safetensors(path, "np")
        if sum(each.nbytes for each in _arrays(state)) > MAX_CLAIMED * path.stat().st_size:
            return None
        state = restored(state, path)
        model, extra = state["model"], state["extra_state"]
        if not all(map(_is_parameter, model.values())) or ALPHAS not in extra or state["cfg"] is None:
            return None
        check_settings(path, state)
        check_history(path, state)
    except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError, UserError):
        return None
    return state


def _arrays(value) -> Iterator[np.ndarray]:
    """All arrays in the state, as often as they occur."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _arrays(each)


def _is_parameter(value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and bool(np.isfinite(value).all())
