"""α of every head over training, from an α log, a folder of checkpoints or a single checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ..attention.types import ATTENTION_TYPES
from ..errors import UserError
from ..files import read_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trajectories:
    """α of every head at some training updates (Correia et al. 2019, figure 2).

    Attributes:
        updates: the U updates, increasing.
        alphas: by attention type, (U, L, H).
    """

    updates: list[int]
    alphas: dict[str, np.ndarray]

    def heads(self) -> Iterator[tuple[str, int, int, np.ndarray]]:
        """Every head: attention type, layer, head, and its α at each update (U,)."""
        for attention_type, values in self.alphas.items():
            for layer, head in np.ndindex(values.shape[1:]):
                yield attention_type, layer, head, values[:, layer, head]

    def final(self) -> dict[str, np.ndarray]:
        """α at the last update: by attention type, (L, H)."""
        return {attention_type: values[-1] for attention_type, values in self.alphas.items()}


def read_trajectories(source: str | Path) -> Trajectories:
    """Read α from a folder of checkpoints, a checkpoint (``*.pt``) or an α log."""
    source = Path(source)
    if source.suffix != ".pt" and not source.is_dir():
        return read_alpha_log(source)
    paths = sorted(source.glob("checkpoint*.pt")) if source.is_dir() else [source]
    if not paths:
        raise UserError(f"the folder {source} has no checkpoints (checkpoint*.pt)")
    return _join(dict(map(_point_of_checkpoint, tqdm(paths, desc="checkpoints", disable=None))))


def read_alpha_log(path: str | Path) -> Trajectories:
    """Read a file written by ``--alpha-log``, which may be compressed.

    A truncated last line, as left by a killed run, is skipped with a warning.

    Raises:
        UserError: the file is missing or a line is no line of an α log; the message names the line.
    """
    lines = read_text(path, "the α log").splitlines()
    points = {}
    for number, line in enumerate(lines, start=1):
        try:
            point = json.loads(line)
            alphas = {name: np.array(point[name], float) for name in ATTENTION_TYPES if name in point}
            points[point["update"]] = alphas
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                logger.warning("%s, line %d is truncated, as after a killed run; skipping it", path, number)
                continue
            raise UserError(f"{path}, line {number} is not a line of an α log: {error}") from None
    if not points:
        raise UserError(f"the α log {path} has no complete line")
    return _join(points)


def _point_of_checkpoint(path: Path) -> tuple[int, dict[str, np.ndarray]]:
    from ..checkpoints import (
        load_checkpoint,
        num_updates,  # these import fairseq
    )
    from .capture import checkpoint_alphas

    state = load_checkpoint(path)
    try:
        alphas = checkpoint_alphas(state)
    except UserError as error:
        raise UserError(f"{path} has no α: {error}") from None
    return num_updates(state), {name: np.array(layers) for name, layers in alphas.items()}


def _join(points: dict[int, dict[str, np.ndarray]]) -> Trajectories:
    """Trajectories from the α's at each update."""
    updates = sorted(points)
    types = points[updates[0]]
    return Trajectories(updates, {name: np.stack([points[each][name] for each in updates]) for name in types})


def to_json(trajectories: Trajectories, source: str) -> str:
    """``{"source", "updates": [U], "heads": [{"attention", "layer", "head", "alpha": [U]}, …]}``."""
    heads = [
        {"attention": kind, "layer": layer, "head": head, "alpha": alphas.round(6).tolist()}
        for kind, layer, head, alphas in trajectories.heads()
    ]
    report = {"source": source, "updates": trajectories.updates, "heads": heads}
    return json.dumps(report, ensure_ascii=False) + "\n"


def to_rows(trajectories: Trajectories) -> list[list]:
    """A row per update and head, after one of headers: update, attention, layer, head, alpha."""
    rows = [
        [update, attention_type, layer, head, round(float(alphas[index]), 6)]
        for index, update in enumerate(trajectories.updates)
        for attention_type, layer, head, alphas in trajectories.heads()
    ]
    return [["update", "attention", "layer", "head", "alpha"], *rows]
