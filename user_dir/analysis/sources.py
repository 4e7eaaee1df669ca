"""What is known of one model, as the other commands left it in files: statistics, α log, attention maps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..attention_types import ATTENTION_TYPES
from ..errors import UserError
from ..io import PACKED, packed_or_plain, parse_json, read_text
from .maps import Maps
from .trajectories import Trajectories, read_trajectories

_MOST = 10_000  # layers, and heads; a table of more would be no use


@dataclass(frozen=True)
class ModelAnalysis:
    """One model: its name, its statistics, and its α's, attention maps and importance of heads if known."""

    name: str
    statistics: dict
    trajectories: Trajectories | None = None
    maps: Maps | None = None
    importance: dict | None = None  # as head_importance.py writes it


def result_file(checkpoint: Path, subset: str, ending: str) -> Path:
    """Where an analysis of a checkpoint over a split is written by default: ``best.valid.heads.json``.

    Args:
        checkpoint: the result lies beside it.
        subset: public name of the split; results of different splits never share a file.
        ending: of the name, for instance ``heads.json``.
    """
    return checkpoint.with_name(f"{checkpoint.stem}.{subset}.{ending}")


def read_model(path: Path) -> ModelAnalysis:
    """Read ``NAME.heads.json`` and, where they lie beside it, ``NAME.importance.json`` and ``alpha.jsonl``.

    Each may be compressed, with ``.bz2`` after its name.

    Raises:
        UserError: a file is not what its name says, the α log is of another model, or the importance of the
            heads was measured on another split.
    """
    stem = path.name.removesuffix(PACKED).removesuffix(".json").removesuffix(".heads")
    log = packed_or_plain(path.with_name("alpha.jsonl"))
    importance = packed_or_plain(path.with_name(f"{stem}.importance.json"))
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
    """Read what ``head_stats.py`` wrote; raises UserError if the file is not there or is something else."""
    path = Path(path)
    text = read_text(path, "the statistics")
    try:
        statistics = parse_json(text)
    except ValueError:
        raise UserError(f"{path} is not JSON; head_stats.py writes what is wanted here") from None
    try:
        _check(statistics)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        found = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"{path} is not the statistics of a model's heads ({found}); write them anew with head_stats.py"
        ) from None
    return statistics


def read_importance(path: Path) -> dict:
    """Read what ``head_importance.py`` wrote; raises UserError if the file is something else."""
    try:
        found = parse_json(read_text(path, "the importance of heads"))
        _ = [found["loss"] + 0.0, *(row["importance"] + 0.0 for row in found["heads"])]
        _ = [row["spearman"] for row in found["correlations"] if row["measure"] + row["attention"]]
        for curve in found["curves"].values():
            if np.array(curve["losses"]).shape[1:] != np.array(curve["pruned"]).shape:
                raise ValueError("a curve of unlike lengths")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path} is not what head_importance.py writes ({error}); write it anew, or move it away"
        ) from None
    return found


def _check(statistics: dict) -> None:
    """Raise an exception of some kind unless statistics are as :mod:`~.statistics` has them."""
    heads, layers = statistics["heads"], statistics["layers"]
    _check_numbers("a measure", list(_floats(statistics)))
    for row in heads:
        _check_place(row)
        for name in ("alpha", "density"):
            _check_numbers(name, [row[name]])
        _check_numbers("density_histogram", row["density_histogram"])
        if row["alpha"] < 1 or min(row["density_histogram"]) < 0 or not sum(row["density_histogram"]):
            raise ValueError("an alpha below 1, or an empty density_histogram")
    if len({len(row["density_histogram"]) for row in heads}) != 1:
        raise ValueError("no heads, or density_histogram of unlike lengths")
    if len({(row["attention"], row["layer"], row["head"]) for row in heads}) != len(heads):
        raise ValueError("a head is there twice")
    for layer in layers:
        _check_place({**layer, "head": 0})
        _check_numbers("union_density", [layer["union_density"]])
        _check_numbers("diversity", [value for value in [layer["diversity"]] if value is not None])
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
    """Every one, however deep."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _floats(inner)


def _check_numbers(name: str, values: list) -> None:
    for value in values:
        if type(value) not in (int, float) or not abs(value) < 1e18:  # nor NaN
            raise ValueError(f"{name} {value!r}")


def check_same_model(model: ModelAnalysis) -> None:
    """Raise a ``UserError`` unless α log and maps have the layers and heads of the statistics."""
    shapes = {}
    for row in model.statistics["heads"]:
        layers, heads = shapes.get(row["attention"], (0, 0))
        shapes[row["attention"]] = max(layers, row["layer"] + 1), max(heads, row["head"] + 1)
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


def check_same_split(models: list[ModelAnalysis]) -> None:
    """Raise a ``UserError`` unless everything measured of the models is of one split of one corpus.

    Files that do not say what they are of, as maps of earlier versions do not, are taken as they are.
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
    """Raise a ``UserError`` unless maps are of one split of one corpus; see :func:`check_same_split`."""
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
