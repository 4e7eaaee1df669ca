"""Read the results of one model from files: statistics, α log, attention maps and head importance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..io import PACKED, packed_or_plain, shown
from ..packed_folders import there
from .head_rows import TOLERANCE, shapes
from .head_tables import head_name, head_of
from .importance_file import read_importance
from .map_checks import listed
from .maps import Maps
from .statistics_file import read_statistics
from .trajectories import Trajectories, read_trajectories


@dataclass(frozen=True)
class ModelAnalysis:
    """A model's name and statistics and, if known, its α's, maps, head importance and attributions."""

    name: str
    statistics: dict
    trajectories: Trajectories | None = None
    maps: Maps | None = None
    importance: dict | None = None  # as head_importance.py writes it
    attributions: list[dict] | None = None  # of the first sentences of the maps: see attribution.attribution


def result_file(checkpoint: Path, subset: str, ending: str) -> Path:
    """The default path of an analysis of a checkpoint over a split, such as ``best.valid.heads.json``.

    ``subset`` is the public name of the split: results of different splits have different files.
    """
    return checkpoint.with_name(f"{checkpoint.stem}.{subset}.{ending}")


def beside(statistics: Path, ending: str) -> Path:
    """The path of another result, such as ``attention.npz``, of the model and split of some statistics."""
    stem = statistics.name.removesuffix(PACKED).removesuffix(".json").removesuffix(".heads")
    return statistics.with_name(f"{stem}.{ending}")


def log_beside(path: Path) -> Path | None:
    """The α log of training, ``alpha.jsonl``, in the folder of a checkpoint or its results; None without."""
    return _found(path.with_name("alpha.jsonl"))


def _found(path: Path) -> Path | None:
    """A file, or the compressed one; None if there is neither."""
    path = packed_or_plain(path)
    return path if there(path) else None


def files_of(path: Path) -> list[Path]:
    """The files that :func:`read_model` reads: statistics and, if they exist, α log and head importance."""
    return [path, *filter(None, (log_beside(path), _found(beside(path, "importance.json"))))]


def read_model(path: str | Path) -> ModelAnalysis:
    """Read ``NAME.heads.json`` and, if they exist next to it, ``NAME.importance.json`` and ``alpha.jsonl``.

    Each may be compressed, with the extension ``.bz2``.

    Raises:
        UserError: a file does not have the expected content, the α log is of another model, or importance was
            measured on another split.
    """
    path = Path(path)
    importance = _found(beside(path, "importance.json"))
    model = read_results(str(path), path, log_beside(path), importance=importance)
    check_same_split([model])
    return model


def read_results(
    name: str,
    statistics: Path,
    log: Path | None = None,
    maps: Path | None = None,
    importance: Path | None = None,
) -> ModelAnalysis:
    """Read files of one model; raises UserError if one is wrong, or they are not of the same model."""
    model = ModelAnalysis(
        name,
        read_statistics(statistics),
        read_trajectories(log) if log else None,
        Maps(maps) if maps else None,
        read_importance(importance) if importance else None,
    )
    check_same_model(model)
    return model


def check_same_model(model: ModelAnalysis) -> None:
    """Raise UserError unless α log, maps and importance have the heads of the statistics, and their α."""
    rows, results = model.statistics["heads"], []
    if model.trajectories is not None:  # its last α's are not those of an average of checkpoints
        final = model.trajectories.final()
        results.append(("α log", {name: values.shape for name, values in final.items()}, {}))
    if model.maps is not None:
        alphas = {
            (name, *place): alpha
            for name, values in model.maps.alphas.items()
            for place, alpha in np.ndenumerate(values)
        }
        results.append(("attention maps", model.maps.shapes, alphas))
    if model.importance is not None:
        _check_checkpoint(model)
        heads = model.importance["heads"]
        results.append(("importance", shapes(heads), {head_of(row): row["alpha"] for row in heads}))
    for what, found, alphas in results:
        if found != shapes(rows):
            raise UserError(
                f"the {what} of {model.name} have layers and heads {listed(found)}, but the statistics "
                f"{listed(shapes(rows))}: they are of another model"
            )
        for row in rows:
            alpha = alphas.get(head_of(row), row["alpha"])
            if abs(alpha - row["alpha"]) > TOLERANCE:
                raise UserError(
                    f"the {what} of {model.name} have α {alpha:g} for {head_name(row)}, but the statistics "
                    f"{row['alpha']:g}: they are of another model"
                )


def _check_checkpoint(model: ModelAnalysis) -> None:
    """Raise UserError if statistics and importance name different checkpoints or updates."""
    for name, of in (("checkpoint", lambda value: Path(value).name), ("update", lambda value: value)):
        one, other = model.statistics.get(name), model.importance.get(name)
        if None not in (one, other) and of(one) != of(other):
            raise UserError(
                f"the statistics of {model.name} are of {name} {shown(one)}, but the importance of its heads "
                f"of {shown(other)}; write both for the same checkpoint"
            )


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


def check_same_sentences(maps: list[Maps], numbers: Iterable[int]) -> None:
    """Raise UserError unless maps are of the same corpus and split, and these sentences have the same text.

    See :func:`check_same_split`; a sentence that a file lacks, or whose text is unknown, is accepted.
    """
    _check_one_split([(str(each.path), vars(each)) for each in maps])
    for number in numbers:
        texts = {each.text(number): each.path for each in maps if number < len(each)}
        texts.pop(None, None)
        if len(texts) > 1:
            (one, first), (other, second) = list(texts.items())[:2]
            raise UserError(
                f"sentence {number} is {shown(one)} in {first}, but {shown(other)} in {second}; write both "
                "for the same --corpus and --subset"
            )


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
    folder, stem = path.absolute().parent.name, path.name.split(".")[0]
    return f"{folder}/{stem}" if folder else stem
