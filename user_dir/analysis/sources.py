"""What is known of one model, as the other commands left it in files: statistics, α log, attention maps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..attention import ATTENTION_TYPES
from ..errors import UserError
from .maps import Maps
from .trajectories import Trajectories

_ROW = ("attention", "layer", "head", "alpha", "density", "density_histogram")
_LAYER = ("attention", "layer", "diversity", "union_density")


@dataclass(frozen=True)
class ModelAnalysis:
    """One model: its name, what ``head_stats.py`` wrote, and where they are there its α's and its maps."""

    name: str
    statistics: dict
    trajectories: Trajectories | None = None
    maps: Maps | None = None


def read_statistics(path: str | Path) -> dict:
    """Read what ``head_stats.py`` wrote; raises UserError if the file is not there or is something else."""
    path = Path(path)
    try:
        statistics = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the statistics {path}: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path} is not JSON; head_stats.py writes what is wanted here") from None
    try:
        complete = (
            bool(statistics["heads"])
            and all(name in row for row in statistics["heads"] for name in _ROW)
            and all(row["attention"] in ATTENTION_TYPES for row in statistics["heads"])
            and all(name in row for row in statistics["layers"] for name in _LAYER)
            and all({"measure", "threshold", "heads"} <= set(role) for role in statistics["roles"].values())
        )
    except (KeyError, TypeError, AttributeError):
        complete = False
    if not complete:
        raise UserError(
            f"{path} is not the statistics of a model's heads; write them anew with head_stats.py"
        )
    return statistics


def model_names(paths: list[Path], given: list[str | None] | None = None) -> list[str]:
    """A name for each model: the one ``given``, or else folder and file; UserError if two are equal."""
    given = given or [None] * len(paths)
    if len(given) != len(paths):
        raise UserError(f"{len(given)} names were given with --name, but there are {len(paths)} models")
    names = [name or _name(path) for name, path in zip(given, paths)]
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise UserError(f"two models would both be called {doubled[0]!r}; tell them apart with --name")
    return names


def _name(path: Path) -> str:
    folder = path.absolute().parent.name
    stem = path.name.split(".")[0]
    return f"{folder}/{stem}" if folder else stem
