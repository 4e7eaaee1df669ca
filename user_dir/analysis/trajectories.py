"""α of every head over training, from an α log, a folder of checkpoints or a single checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import UNSET, UnsetType, defstruct
from tqdm import tqdm

from ..attention_types import ATTENTION_TYPES
from ..bounded import MAX_WHOLE, bounded_lines, unpacking
from ..errors import UserError, one_line
from ..faults import find_fault
from ..io import parse_json
from ..schema import whole
from ..tables import csv_text
from .head_rows import Alpha
from .head_tables import layer_table

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
    if source.is_dir():
        return _trajectories_of_folder(source)
    return _join([_point_of_checkpoint(source)]) if source.suffix == ".pt" else read_alpha_log(source)


def read_alpha_log(path: str | Path) -> Trajectories:
    """Read a file written by ``--alpha-log``.

    A truncated last line, as left by a killed run, is skipped with a warning.

    Raises:
        UserError: the file is missing or a line is invalid; the message names the line.
    """
    path = Path(path)
    points = []
    for number, line, ended in _lines(path):
        if not line.strip():
            continue
        try:
            point = _point(line)
        except ValueError as error:
            if not ended and not isinstance(error, UserError):
                logger.warning("%s, line %d is truncated, as after a killed run; skipping it", path, number)
                continue
            reason = error if isinstance(error, UserError) else f"it is not JSON ({one_line(error)})"
            raise UserError(f"{path}, line {number} is not a line of an α log: {reason}") from None
        _check_follows(points, point, f"{path}, line {number}")
        points.append(point)
    if not points:
        raise UserError(f"the α log {path} has no complete line")
    return _join(points)


def _lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Number, text and whether it ends with a newline, of each line of a log."""
    try:
        with unpacking(path, MAX_WHOLE) as file:
            for number, line in enumerate(bounded_lines(file, path, ends=True), start=1):
                yield number, line.decode(), line.endswith(b"\n")
    except UnicodeDecodeError:
        raise UserError(f"cannot read the α log {path}: it is not text") from None
    except OSError as error:
        raise UserError(f"cannot read the α log {path}: {error.strerror}") from None


def _trajectories_of_folder(folder: Path) -> Trajectories:
    """Read a folder's checkpoints (``checkpoint*.pt``), one point per update."""
    paths = sorted(folder.glob("checkpoint*.pt"))
    if not paths:
        raise UserError(f"the folder {folder} has no checkpoints (checkpoint*.pt)")
    found = {}
    for path in tqdm(paths, desc="checkpoints", disable=None):
        point = _point_of_checkpoint(path)
        found.setdefault(point[0], (path, point))
    points = []
    for _, (path, point) in sorted(found.items()):
        _check_follows(points, point, str(path))
        points.append(point)
    return _join(points)


_Point = tuple  # update, {attention type: (L, H)}
_Layers = list[list[Alpha]] | UnsetType
_Line = defstruct(
    "_Line",
    [("update", whole(0, 2**53 - 1)), *((name, _Layers, UNSET) for name in ATTENTION_TYPES)],
    forbid_unknown_fields=True,
)


def _point_of_checkpoint(path: Path) -> _Point:
    from ..checkpoints import (
        load_checkpoint,  # imports fairseq
        num_updates,
    )
    from ..models.from_settings import checkpoint_alphas

    state = load_checkpoint(path)
    try:
        alphas = checkpoint_alphas(state)
    except UserError as error:
        raise UserError(f"{path} has no α: {error}") from None
    return num_updates(state), {name: np.array(layers) for name, layers in alphas.items()}


def _point(line: str) -> _Point:
    """Parse a line of an α log; raises ValueError if it is truncated and UserError if it is invalid."""
    values = parse_json(line)
    fault = find_fault(values, _Line)
    if fault is not None:
        raise UserError(fault.message)
    alphas = {}
    for name in ATTENTION_TYPES:
        layers = values.get(name)
        if layers is not None:
            if len({len(layer) for layer in layers}) != 1 or not layers[0]:
                raise UserError(f"{name} is not an array of α by layer and head")
            alphas[name] = np.array(layers, dtype=float)
    if not alphas:
        raise UserError(f"it has none of {', '.join(ATTENTION_TYPES)}")
    return values["update"], alphas


def _check_follows(points: list[_Point], point: _Point, where: str) -> None:
    if not points:
        return
    if point[0] <= points[-1][0]:
        raise UserError(
            f"{where}: update {point[0]} comes after update {points[-1][0]}; were logs of two runs joined?"
        )
    shapes = [{name: values.shape for name, values in each[1].items()} for each in (points[-1], point)]
    if shapes[0] != shapes[1]:
        raise UserError(f"{where}: layers and heads are {shapes[1]}, but {shapes[0]} before; wrong model?")


def _join(points: list[_Point]) -> Trajectories:
    updates = [update for update, _ in points]
    return Trajectories(
        updates, {name: np.stack([alphas[name] for _, alphas in points]) for name in points[0][1]}
    )


def to_json(trajectories: Trajectories, source: str) -> str:
    """``{"source", "updates": [U], "heads": [{"attention", "layer", "head", "alpha": [U]}, …]}``."""
    heads = [
        {
            "attention": kind,
            "layer": layer,
            "head": head,
            "alpha": [round(each, 6) for each in alphas.tolist()],
        }
        for kind, layer, head, alphas in trajectories.heads()
    ]
    report = {"source": source, "updates": trajectories.updates, "heads": heads}
    return json.dumps(report, ensure_ascii=False) + "\n"


def to_csv(trajectories: Trajectories) -> str:
    """A row per update and head: update, attention, layer, head, alpha."""
    rows = (
        [update, attention_type, layer, head, round(float(alphas[index]), 6)]
        for index, update in enumerate(trajectories.updates)
        for attention_type, layer, head, alphas in trajectories.heads()
    )
    return csv_text(rows, ["update", "attention", "layer", "head", "alpha"])


def alpha_table(trajectories: Trajectories) -> str:
    """The final α of every head as text: a line per layer and a column per head, for each attention type."""
    lines = [f"alpha at update {trajectories.updates[-1]}", ""]
    for attention_type, alphas in trajectories.final().items():
        lines.append(f"{attention_type}: mean alpha {alphas.mean():.3f}")
        lines += [layer_table({"": dict(enumerate(alphas))}), ""]
    return "\n".join(lines)
