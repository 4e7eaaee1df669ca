"""Read the results of one model from files: statistics, α log, attention maps and head importance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..attention_types import ATTENTION_TYPES
from ..errors import UserError
from ..io import PACKED, packed_or_plain, parse_json, read_text, shown
from .maps import Maps
from .trajectories import Trajectories, read_trajectories

_REQUIRED = {"alpha", "density"}  # measures that every head has
_NO_MEASURES = {"attention", "density_histogram", "roles"}  # columns of heads that are not numbers
_MOST = 10_000  # maximum number of layers and of heads


@dataclass(frozen=True)
class ModelAnalysis:
    """A model's name and statistics and, if known, its α's, attention maps and head importance."""

    name: str
    statistics: dict
    trajectories: Trajectories | None = None
    maps: Maps | None = None
    importance: dict | None = None  # as head_importance.py writes it


def result_file(checkpoint: Path, subset: str, ending: str) -> Path:
    """The default path of an analysis of a checkpoint over a split, such as ``best.valid.heads.json``.

    Args:
        checkpoint: the result is written next to it.
        subset: public name of the split; results of different splits have different files.
        ending: end of the file name, such as ``heads.json``.
    """
    return checkpoint.with_name(f"{checkpoint.stem}.{subset}.{ending}")


def files_of(path: Path) -> tuple[Path, Path, Path]:
    """The files that :func:`read_model` reads if they exist: statistics, α log and head importance."""
    stem = path.name.removesuffix(PACKED).removesuffix(".json").removesuffix(".heads")
    log, importance = path.with_name("alpha.jsonl"), path.with_name(f"{stem}.importance.json")
    return path, packed_or_plain(log), packed_or_plain(importance)


def read_model(path: Path) -> ModelAnalysis:
    """Read ``NAME.heads.json`` and, if they exist next to it, ``NAME.importance.json`` and ``alpha.jsonl``.

    Each may be compressed, with the extension ``.bz2``.

    Raises:
        UserError: a file does not have the expected content, the α log is of another model, or importance was
            measured on another split.
    """
    _, log, importance = files_of(path)
    model = ModelAnalysis(
        str(path),
        read_statistics(path),
        read_trajectories(log) if log.is_file() else None,
        importance=read_importance(importance) if importance.is_file() else None,
    )
    check_same_model(model)
    check_same_split([model])
    return model


def read_statistics(path: str | Path) -> dict:
    """Read a file written by ``head_stats.py``; raises UserError if it is missing or has other content."""
    path = Path(path)
    text = read_text(path, "the statistics")
    try:
        statistics = parse_json(text)
    except ValueError:
        raise UserError(f"{path} is not JSON; expected statistics written by head_stats.py") from None
    try:
        _check(statistics)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        found = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"{path} is not a file of head statistics ({found}); write it again with head_stats.py"
        ) from None
    return statistics


def read_importance(path: Path) -> dict:
    """Read a file written by ``head_importance.py``; raises UserError if it has other content."""
    try:
        found = parse_json(read_text(path, "the importance of heads"))
        _check_importance(found)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        reason = f"no {error.args[0]}" if isinstance(error, KeyError) else error
        raise UserError(
            f"{path} is not written by head_importance.py ({reason}); write it again, or remove it"
        ) from None
    return found


def _check_importance(found: dict) -> None:
    """Raise an exception unless the importance of heads is as :mod:`~.importance` gives it."""
    _check_numbers("loss", [found["loss"]])
    _check_numbers("importance", [row["importance"] for row in found["heads"]])
    for row in found["correlations"]:
        for name in ("measure", "attention"):
            str.strip(row[name])
        if (row["spearman"], row["p_value"]) != (None, None):  # if not defined, both are None
            for name in ("spearman", "p_value"):
                _check_numbers(name, [row[name]])
    for curve in found["curves"].values():
        pruned, losses = curve["pruned"], curve["losses"]
        _check_numbers("pruned", pruned)
        if not (pruned and pruned[0] >= 0 and pruned[-1] > 0) or any(np.diff(pruned) <= 0):
            raise ValueError(f"pruned {shown(pruned)}, which must increase to the number of heads")
        for each in losses:
            _check_numbers("a loss", each)
        if {len(each) for each in losses} != {len(pruned)}:
            raise ValueError("a curve without losses, or of unequal lengths")
    if not (found["heads"] and found["curves"]):
        raise ValueError("no heads, or no curves")


def _check(statistics: dict) -> None:
    """Raise an exception unless the statistics are as :mod:`~.statistics` writes them."""
    heads, layers = statistics["heads"], statistics["layers"]
    _check_numbers("a measure", list(_floats(statistics)))
    for row in heads:
        _check_place(row)
        for name in _REQUIRED | row.keys() - _NO_MEASURES:
            if row[name] is not None or name in _REQUIRED:
                _check_numbers(name, [row[name]])
        _check_numbers("density_histogram", row["density_histogram"])
        if row["alpha"] < 1 or min(row["density_histogram"]) < 0 or not sum(row["density_histogram"]):
            raise ValueError("an alpha below 1, or an empty density_histogram")
    if len({len(row["density_histogram"]) for row in heads}) != 1:
        raise ValueError("no heads, or density_histogram of unequal lengths")
    if len({(row["attention"], row["layer"], row["head"]) for row in heads}) != len(heads):
        raise ValueError("a head occurs twice")
    shapes = _shapes(heads)
    for kind, (depth, width) in shapes.items():
        if depth * width != sum(row["attention"] == kind for row in heads):
            raise ValueError(f"{kind} lacks some of the heads of {depth} layers of {width}")
    for layer in layers:
        _check_place({**layer, "head": 0})
        _check_numbers("union_density", [layer["union_density"]])
        _check_numbers("diversity", [value for value in [layer["diversity"]] if value is not None])
    expected = [(kind, layer) for kind, (depth, _) in shapes.items() for layer in range(depth)]
    if sorted((row["attention"], row["layer"]) for row in layers) != sorted(expected):
        raise ValueError("layers other than those of its heads")
    for role in statistics["roles"].values():
        _check_numbers("threshold", [role["threshold"]])
        _check_numbers("value", [head["value"] for head in role["heads"]])
        for head in role["heads"]:
            _check_place(head)
        str.strip(role["measure"])
    dict.items(statistics.get("measures", {}))


def _check_place(row: dict) -> None:
    if row["attention"] not in ATTENTION_TYPES:
        raise ValueError(f"no attention type {row['attention']!r}")
    for name in ("layer", "head"):
        if type(row[name]) is not int or not 0 <= row[name] < _MOST:
            raise ValueError(f"{name} {row[name]!r}")


def _floats(value) -> Iterator[float]:
    """All floats in nested lists and dicts."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _floats(inner)


def _check_numbers(name: str, values: list) -> None:
    for value in values:
        if type(value) not in (int, float) or not abs(value) < 1e18:  # also excludes NaN
            raise ValueError(f"{name} {shown(value)}")


def check_same_model(model: ModelAnalysis) -> None:
    """Raise UserError unless the α log and the maps have the layers and heads of the statistics."""
    shapes = _shapes(model.statistics["heads"])
    others = {}
    if model.trajectories is not None:
        others["α log"] = {name: values.shape for name, values in model.trajectories.final().items()}
    if model.maps is not None:
        others["attention maps"] = {name: each.shape[:2] for name, each in model.maps[0].weights.items()}
    for what, found in others.items():
        if found != shapes:
            raise UserError(
                f"the {what} of {model.name} have layers and heads {_listed(found)}, but the statistics "
                f"{_listed(shapes)}: they are of another model"
            )


def _shapes(rows: list[dict]) -> dict[str, tuple[int, int]]:
    """By attention type: the numbers of layers, and of heads in each, that rows of heads are of."""
    shapes: dict[str, tuple[int, int]] = {}
    for row in rows:
        layers, heads = shapes.get(row["attention"], (0, 0))
        shapes[row["attention"]] = max(layers, row["layer"] + 1), max(heads, row["head"] + 1)
    return shapes


def check_same_split(models: list[ModelAnalysis]) -> None:
    """Raise UserError unless all results of the models are of the same corpus and split.

    Files that do not name their split, such as maps of earlier versions, are accepted.
    """
    results = []
    for model in models:
        results.append((f"the statistics of {model.name}", model.statistics))
        if model.maps is not None:
            results.append((f"the attention maps of {model.name}", vars(model.maps)))
        if model.importance is not None:
            results.append((f"the importance of the heads of {model.name}", model.importance))
    _check_one_split(results)


def check_same_split_of_maps(maps: list[Maps]) -> None:
    """Raise UserError unless maps are of the same corpus and split; see :func:`check_same_split`."""
    _check_one_split([(str(each.path), vars(each)) for each in maps])


def _check_one_split(results: list[tuple[str, dict]]) -> None:
    splits: dict[str, str] = {}
    for what, result in results:
        if result.get("subset") is not None:
            splits.setdefault(f"{result.get('corpus')}, {result['subset']}", what)
    if len(splits) > 1:
        (one, first), (other, second) = list(splits.items())[:2]
        raise UserError(
            f"different splits cannot be combined: {first} ({one}) and {second} ({other}); write them for "
            "the same --corpus and --subset, or choose other files"
        )


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {layers}×{heads}" for name, (layers, heads) in shapes.items())


def model_names(paths: list[Path], given: list[str | None] | None = None) -> list[str]:
    """A name per model: the one ``given``, or folder and file name; UserError if two are equal."""
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
