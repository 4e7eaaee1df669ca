"""Reading and validation of an experiment's YAML file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Literal

import yaml
from msgspec import Meta, Struct, field

from ..errors import UserError
from ..faults import Fault, Steps
from ..io import name_fault, shown
from ..schema import number, pattern, whole
from ..yaml_files import line_of, read_yaml_as
from .settings import DEFAULTS

# Overrides of stop_early: false. BLEU of validation takes time and would decide nothing.
NEVER_EARLY = tuple(
    f"{section}.{key}={json.dumps(value)}"
    for section, settings in DEFAULTS.items()
    for key, value in settings.items()
)
OURS = {
    "common.seed": "use seeds",
    "checkpoint.save_dir": "every run has its own folder",
    "common.user_dir": "it is always this plugin",
    "common.log_file": "every run has a log in its folder",
    "common.tensorboard_logdir": "it would be written outside the run's folder",
}
# Kinds of steps and what else they take.
KINDS = {
    "prepare": ("raw",),  # a corpus, from the raw files in a folder
    "train": (),  # a config
    "triplets": ("corpus", "output"),  # a checkpoint, which translates a corpus to triplets
}


Positive = whole(1)
Name = pattern("[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "a name of at most 100 letters, digits, '.', '_' and '-'")
# Neither NUL, which ends a file's name, nor half a character, as YAML can escape.
Place = pattern("[^\0\ud800-\udfff]+", "the path of a config")
Override = pattern("[^\0\ud800-\udfff=]+=[^\0\ud800-\udfff]*", "of the form section.key=value")


class Search(Struct, frozen=True, forbid_unknown_fields=True):
    """What scripts/search.py measures of a run, on each test set."""

    beams: Annotated[tuple[Positive, ...], Meta(min_length=1)] = (1, 5, 20, 50, 100)
    min_words: Positive = 1
    sentences: Positive | None = None  # the first ones of each test set; None for all
    exact: bool = True
    most_expansions: Positive = 5000


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One step: the key of its kind and, beside it, its settings."""

    prepare: str | None = None
    train: str | None = None
    triplets: str | None = None
    raw: str | None = None
    corpus: str | None = None
    output: str | None = None

    def __post_init__(self) -> None:
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if sum(kind in given for kind in KINDS) != 1:
            raise ValueError(f"a step must have one of the keys {', '.join(KINDS)}")
        if given.keys() - {self.kind, *KINDS[self.kind]} or (self.kind == "triplets" and len(given) < 3):
            raise ValueError(f"{self.kind} takes {' and '.join(KINDS[self.kind]) or 'nothing else'}")
        for name, value in given.items():
            fault = name_fault(value, folders=True)
            if fault is not None:
                raise ValueError(f"{name} is {shown(value)}, which {fault}")

    @property
    def kind(self) -> str:
        """One of :data:`KINDS`."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def object(self) -> str:
        """What is prepared, trained or translated with."""
        return getattr(self, self.kind)


class _Runs(Struct, forbid_unknown_fields=True):
    """An entry of ``runs``."""

    name: Name
    config: Place
    overrides: list[Override] = []
    seeds: Annotated[list[int], Meta(min_length=1)] = field(default_factory=lambda: [1])
    of: Name | None = None  # another experiment


class _Plan(Struct, forbid_unknown_fields=True):
    """An experiment's file."""

    runs: Annotated[list[_Runs], Meta(min_length=1)]
    average: Positive | Literal["ema"] = 5
    beam: Positive = 5
    importance: bool = True
    stop_early: bool = True
    before: list[Step] = []
    search: Search | None = None
    new_piece_penalty: number(0, 1000) | Literal["valid"] | None = None
    overrides: list[Override] = []


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
    new_piece_penalty: float | Literal["valid"] | None = None  # of evaluate.py

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
    of any; its config and overrides must then be the same, also if one of them is ``of`` another experiment.

    Args:
        path: the YAML file; the experiment has its name without the suffix.
        root: the folder that config paths are relative to.

    Raises:
        UserError: the file is invalid; with file and line.
    """
    fault = name_fault(path.stem)
    if fault is not None:
        raise UserError(f"{path}: the experiment's name, {shown(path.stem)}, {fault}; rename the file")
    plan, node = _read(path)
    searches = {path.stem: plan.search}
    shared = (*(() if plan.stop_early else NEVER_EARLY), *plan.overrides)
    runs: dict[str, Run] = {}
    first: dict[str, Run] = {}  # tables have a row for each name
    for index, entry in enumerate(plan.runs):
        where, experiment = line_of(path, node, ("runs", index)), entry.of or path.stem
        if experiment not in searches:
            other = path.with_name(f"{experiment}.yaml")
            searches[experiment] = _read(other)[0].search if other.is_file() else None
        config, overrides, search = root / entry.config, (*shared, *entry.overrides), searches[experiment]
        chosen = plan.average, plan.beam, plan.importance, search, plan.new_piece_penalty
        for seed in entry.seeds:
            run = Run(experiment, entry.name, seed, config, overrides, *chosen)
            if run.label in runs:
                raise UserError(f"{where}: {run.label} occurs twice")
            like = first.setdefault(run.name, run)
            if (run.config, run.overrides) != (like.config, like.overrides):
                raise UserError(f"{where}: {run.name} occurs twice with different configs or overrides")
            runs[run.label] = run
    return list(runs.values())


def read_steps(path: Path) -> list[Step]:
    """What an experiment makes before its runs; raises UserError if its file is invalid."""
    return _read(path)[0].before


def select(runs: list[Run], patterns: list[str]) -> list[Run]:
    """The runs whose label matches one of the patterns (``*``, ``?``); all runs if there are no patterns."""
    for each in patterns:
        if not any(fnmatch(run.label, each) for run in runs):
            known = ", ".join(run.label for run in runs)
            raise UserError(f"--only {each} matches none of the runs: {known}")
    return [run for run in runs if not patterns or any(fnmatch(run.label, each) for each in patterns)]


def _read(path: Path) -> tuple[_Plan, yaml.Node]:
    plan, node = read_yaml_as(path, _Plan)
    for steps, message in _reserved(plan):
        raise UserError(f"{line_of(path, node, steps)}: {message}")
    return plan, node


def _reserved(plan: _Plan) -> Iterator[Fault]:
    """Overrides of settings that we set ourselves."""
    places: list[tuple[Steps, str]] = [(("overrides",), override) for override in plan.overrides]
    places += [(("runs", index), each) for index, run in enumerate(plan.runs) for each in run.overrides]
    for steps, override in places:
        key = override.partition("=")[0].strip().lstrip("+~").strip()
        for ours, instead in OURS.items():
            if key in (ours, ours.partition(".")[0]):  # the setting, or its whole section
                yield Fault(steps, f"{override} cannot be an override; {instead}")
        if key.partition(".")[0] == "hydra":
            yield Fault(steps, f"{override} cannot be an override; it configures hydra itself")
