"""α of every head over training, from an α log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..attention.types import ATTENTION_TYPES
from ..errors import UserError
from ..files import read_text


@dataclass(frozen=True)
class Trajectories:
    """α of every head at some training updates (Correia et al. 2019, figure 2).

    Attributes:
        updates: the U updates, increasing.
        alphas: by attention type, (U, L, H).
    """

    updates: list[int]
    alphas: dict[str, np.ndarray]


def read_trajectories(path: str | Path) -> Trajectories:
    """Read a file written by ``--alpha-log``, which may be compressed.

    A truncated last line, as left by a killed run, is skipped.

    Raises:
        UserError: the file is missing or a line does not belong to an α log; the message names the line.
    """
    lines = read_text(path, "the α log").splitlines()
    points = {}
    for number, line in enumerate(lines, start=1):
        try:
            point = json.loads(line)
            alphas = {name: np.array(point[name], float) for name in ATTENTION_TYPES if name in point}
            points[point["update"]] = alphas
        except (ValueError, KeyError, TypeError) as error:
            if number < len(lines):
                raise UserError(f"{path}, line {number} is not a line of an α log: {error}") from None
    if not points:
        raise UserError(f"the α log {path} has no complete line")
    updates = sorted(points)
    types = points[updates[0]]
    return Trajectories(updates, {name: np.stack([points[at][name] for at in updates]) for name in types})
