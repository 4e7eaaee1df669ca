"""What a checkpoint says of its model and its training; without torch."""

from __future__ import annotations

import argparse

AVERAGED = "averaged"
"""Where an average of several checkpoints keeps their numbers of updates, in a list."""


def model_name(state: dict) -> str:
    """The architecture that a checkpoint was trained with, such as ``adaptively_sparse_transformer_tiny``."""
    settings = model_settings(state)
    return settings.get("_name") or settings.get("arch") or "unknown"


def model_settings(state: dict) -> dict:
    """The model settings of a checkpoint, written by either of fairseq's two training commands."""
    return _as_dict(state["cfg"]["model"])


def architecture_settings(state: dict) -> dict:
    """The model settings alone: ``fairseq-train`` stores those of all other sections beside them."""
    others = {
        name
        for section, settings in state["cfg"].items()
        if section != "model" and isinstance(settings, (dict, argparse.Namespace))
        for name in _as_dict(settings)
    }
    return {name: value for name, value in model_settings(state).items() if name not in others}


def task_settings(state: dict) -> dict:
    """The task settings of a checkpoint, including the languages."""
    return _as_dict(state["cfg"]["task"])


def _as_dict(settings) -> dict:
    return dict(vars(settings) if isinstance(settings, argparse.Namespace) else settings)


def num_updates(state: dict) -> int:
    """The number of updates in a checkpoint's training."""
    history = state.get("optimizer_history") or [{}]
    return history[-1].get("num_updates", 0)


def averaged_updates(state: dict) -> list[int] | None:
    """The numbers of updates of the checkpoints that a checkpoint is the average of; None if it is none."""
    found = state.get(AVERAGED)
    valid = isinstance(found, list) and all(type(each) is int and each >= 0 for each in found)
    return found if found and valid else None
