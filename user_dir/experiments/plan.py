"""Reading and validation of an experiment's YAML file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError
from ..io import name_fault, read_yaml, shown
from .settings import DEFAULTS

KEYS = {
    "average": ((int, str), "a positive integer, or ema"),
    "beam": (int, "a positive integer"),
    "importance": (bool, "true or false"),
    "stop_early": (bool, "true or false"),
    "before": (list, "a list of steps"),
    "search": (dict, "settings of search.py"),
    "overrides": (list, "a list of section.key=value"),
    "runs": (list, "a list of runs"),
}
SEARCH_KEYS = {
    "beams": (list, "a list of positive integers"),
    "min_words": (int, "a positive integer"),
    "sentences": (int, "a positive integer"),
    "exact": (bool, "true or false"),
    "most_expansions": (int, "a positive integer"),
}
RUN_KEYS = {
    "name": (str, "a name of at most 100 letters, digits, '.', '_' and '-'"),
    "config": (str, "the path of a config"),
    "overrides": (list, "a list of section.key=value"),
    "seeds": (list, "a list of integers"),
    "of": (str, "the name of another experiment"),
}
# Overrides of stop_early: false. BLEU of validation takes time and would decide nothing.
NEVER_EARLY = tuple(
    f"{section}.{key}={json.dumps(value)}"
    for section, settings in DEFAULTS.items()
    for key, value in settings.items()
)
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
OURS = {
    "common.seed": "use seeds",
    "checkpoint.save_dir": "every run has its own folder",
    "common.user_dir": "it is always this plugin",
    "common.log_file": "every run has a log in its folder",
    "common.tensorboard_logdir": "it would be written outside the run's folder",
}


@dataclass(frozen=True)
class Search:
    """What scripts/search.py measures of a run, on each test set."""

    beams: tuple[int, ...] = (1, 5, 20, 50, 100)
    min_words: int = 1
    sentences: int | None = None  # the first ones of each test set; None for all
    exact: bool = True
    most_expansions: int = 5000


@dataclass(frozen=True)
class Run:
    """One training run."""

    experiment: str  # name of the experiment's folder
    name: str
    seed: int
    config: Path
    overrides: tuple[str, ...]
    average: int | str  # number of last epochs to average; "ema": the moving average that training keeps
    beam: int = 5
    importance: bool = True  # whether to measure the importance of heads
    search: Search | None = None

    @property
    def label(self) -> str:
        """The run's name and seed, unique in the experiment."""
        return f"{self.name}-seed{self.seed}"


def read_plan(path: Path, root: Path) -> list[Run]:
    """Read the runs of an experiment, in the order in which they are run.

    The ``overrides`` of the file come before those of each run, and before them, with ``stop_early: false``,
    those that make a translation model train for its config's number of updates, whatever validation says.

    A run ``of`` another experiment is searched as that one says, if its file is beside this one.

    A name may be repeated with other seeds, so that the first seed of every run can precede the second seed
    of any; its config and overrides must then be the same.

    Args:
        path: the YAML file; the experiment has its name without the suffix.
        root: the folder that config paths are relative to.

    Raises:
        UserError: the file is invalid; with file and line.
    """
    fault = name_fault(path.stem)
    if fault is not None:
        raise UserError(f"{path}: the experiment's name, {shown(path.stem)}, {fault}; rename the file")
    values, lines = _load(path)
    _check(values, KEYS, ("runs",), str(path))
    average, beam = values.get("average", 5), values.get("beam", 5)
    if average != "ema" and (not isinstance(average, int) or average < 1):
        raise UserError(f"{path}: average is {average}, but must be {KEYS['average'][1]}")
    if beam < 1:
        raise UserError(f"{path}: beam is {beam}, but must be a positive integer")
    if not values["runs"]:
        raise UserError(f"{path}: runs is empty")
    searches = {path.stem: _search_of(values, path)}
    shared = (*(() if values.get("stop_early", True) else NEVER_EARLY), *_overrides(values, str(path)))
    runs: dict[str, Run] = {}
    first: dict[tuple[str, str], Run] = {}
    for entry, line in zip(values["runs"], lines):
        where = f"{path}, line {line}"
        for run in _runs(entry, where, path.stem, root, average, shared):
            if run.experiment not in searches:
                other = path.with_name(f"{run.experiment}.yaml")
                searches[run.experiment] = _search_of(_load(other)[0], other) if other.is_file() else None
            search, importance = searches[run.experiment], values.get("importance", True)
            run = replace(run, beam=beam, importance=importance, search=search)
            if run.label in runs:
                raise UserError(f"{where}: {run.label} occurs twice")
            like = first.setdefault((run.experiment, run.name), run)
            if (run.config, run.overrides) != (like.config, like.overrides):
                raise UserError(f"{where}: {run.name} occurs twice with different configs or overrides")
            runs[run.label] = run
    return list(runs.values())


def select(runs: list[Run], patterns: list[str]) -> list[Run]:
    """The runs whose label matches one of the patterns (``*``, ``?``); all runs if there are no patterns."""
    for pattern in patterns:
        if not any(fnmatch(run.label, pattern) for run in runs):
            known = ", ".join(run.label for run in runs)
            raise UserError(f"--only {pattern} matches none of the runs: {known}")
    return [run for run in runs if not patterns or any(fnmatch(run.label, each) for each in patterns)]


def _runs(
    entry: Any, where: str, experiment: str, root: Path, average: int | str, shared: tuple[str, ...]
) -> list[Run]:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: a run is {entry!r}, but must be a mapping with name and config")
    _check(entry, RUN_KEYS, ("name", "config"), where)
    for key in ("name", "of"):
        if key in entry and (not re.fullmatch(NAME, entry[key]) or name_fault(entry[key])):
            raise UserError(f"{where}: {key} is {shown(entry[key])}, but must be {RUN_KEYS['name'][1]}")
    if not _is_unicode(entry["config"]):
        raise UserError(f"{where}: config is {shown(entry['config'])}, but must be the path of a file")
    overrides = _overrides(entry, where)
    seeds = entry.get("seeds", [1])
    if not seeds or not all(type(seed) is int and abs(seed) < 2**63 for seed in seeds):
        raise UserError(f"{where}: seeds is {shown(seeds)}, but must be {RUN_KEYS['seeds'][1]}")
    return [
        Run(
            entry.get("of", experiment),
            entry["name"],
            seed,
            root / entry["config"],
            (*shared, *overrides),
            average,
        )
        for seed in seeds
    ]


def _search_of(plan: dict, path: Path) -> Search | None:
    """What a plan says about search, if anything."""
    values, where = plan.get("search"), f"{path}: search"
    if values is None:
        return None
    if not isinstance(values, dict):
        raise UserError(f"{where} is {values!r}, but must be {KEYS['search'][1]}")
    _check(values, SEARCH_KEYS, (), where)
    beams = values.get("beams", list(Search.beams))
    if not beams or not all(type(beam) is int and beam > 0 for beam in beams):
        raise UserError(f"{where}: beams is {shown(beams)}, but must be {SEARCH_KEYS['beams'][1]}")
    for key, (kind, called) in SEARCH_KEYS.items():
        if kind is int and values.get(key, 1) < 1:
            raise UserError(f"{where}: {key} is {values[key]}, but must be {called}")
    return Search(**{**values, "beams": tuple(beams)})


def _overrides(values: dict, where: str) -> tuple[str, ...]:
    """The overrides of a run or of all runs; settings that we set ourselves are refused."""
    overrides = values.get("overrides", [])
    for override in overrides:
        key = override.partition("=")[0].strip().lstrip("+~").strip() if isinstance(override, str) else None
        if key is None or "=" not in override:
            raise UserError(f"{where}: the override {override!r} is not of the form section.key=value")
        if not _is_unicode(override):
            raise UserError(f"{where}: the override {shown(override)} has NUL or half a character; remove it")
        for ours, instead in OURS.items():
            if key in (ours, ours.partition(".")[0]):  # the setting, or its whole section
                raise UserError(f"{where}: {override} cannot be an override; {instead}")
        if key.partition(".")[0] == "hydra":
            raise UserError(f"{where}: {override} cannot be an override; it configures hydra itself")
    return tuple(overrides)


def _is_unicode(text: str) -> bool:
    """Whether text has neither NUL, which ends a file's name, nor half a character, as YAML can escape."""
    return not re.search("[\0\ud800-\udfff]", text)


def _check(values: dict, keys: dict, required: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in keys:
            raise UserError(f"{where}: unknown key {key!r}; choose from {', '.join(keys)}")
    for key, (kind, called) in keys.items():
        if key not in values:
            if key in required:
                raise UserError(f"{where}: the key {key!r} is missing; expected {called}")
        elif not isinstance(values[key], kind) or isinstance(values[key], bool) != (kind is bool):
            raise UserError(f"{where}: {key} is {values[key]!r}, but must be {called}")


def _load(path: Path) -> tuple[dict[str, Any], list[int]]:
    """The file's values, and the line on which each run starts."""
    values, node = read_yaml(path)
    if not isinstance(values, dict):
        raise UserError(f"{path} must be a mapping with the key runs; see experiments/ for examples")
    lists = [value for key, value in node.value if key.value == "runs"]  # the last one counts, as in values
    entries = lists[-1].value if lists and isinstance(lists[-1], yaml.SequenceNode) else []
    if isinstance(values.get("runs"), list) and len(values["runs"]) != len(entries):
        raise UserError(f"{path}: runs comes from another mapping, by <<; write it into the file itself")
    return values, [entry.start_mark.line + 1 for entry in entries]
