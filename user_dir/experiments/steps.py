"""What an experiment needs before its runs: prepared corpora, trainings, and triplets of a black-box MT.

A plan lists the steps under ``before``. They are made in this order; one that has been made with the same
settings is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..corpora import load_corpus
from ..errors import UserError
from ..io import locked, name_fault, parse_json, read_text, read_yaml, shown, write_json

KINDS = {
    "prepare": ("raw",),  # a corpus, from the raw files in a folder
    "train": (),  # a config
    "triplets": ("corpus", "output"),  # a checkpoint, which translates a corpus to triplets
}
DONE = "done.json"


@dataclass(frozen=True)
class Step:
    """One step: its kind, its object, its other settings, and where it is in the plan."""

    kind: str
    object: str
    settings: dict[str, str]
    where: str

    def path(self, name: str, root: Path) -> Path | None:
        """A setting as a path relative to ``root``."""
        return root / self.settings[name] if name in self.settings else None


def read_steps(path: Path) -> list[Step]:
    """The steps of a plan; raises UserError, with file and number of the step, if one is invalid."""
    values, _ = read_yaml(path)
    given = values.get("before", []) if isinstance(values, dict) else []
    if not isinstance(given, list):
        raise UserError(f"{path}: before is {shown(given)}, but must be a list of steps")
    return [_step(entry, f"{path}, step {number}") for number, entry in enumerate(given, start=1)]


def _step(entry: Any, where: str) -> Step:
    kind = next((kind for kind in KINDS if isinstance(entry, dict) and kind in entry), None)
    if kind is None:
        raise UserError(f"{where} is {shown(entry)}, but must have one of the keys {', '.join(KINDS)}")
    if entry.keys() - {kind, *KINDS[kind]} or (kind == "triplets" and len(entry) < 3):
        raise UserError(
            f"{where} is {shown(entry)}; {kind} takes {' and '.join(KINDS[kind]) or 'nothing else'}"
        )
    for key, value in entry.items():
        fault = name_fault(value, folders=True)
        if fault is not None:
            raise UserError(f"{where}: {key} is {shown(value)}, which {fault}")
    return Step(kind, entry[kind], {key: value for key, value in entry.items() if key != kind}, where)


def make_steps(steps: list[Step], root: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Make every step that is not made yet.

    Args:
        steps: from :func:`read_steps`.
        root: the folder that their paths are relative to.
        folder: of the experiment, which is locked meanwhile.
        say: told what is being done.
    """
    makers = {"prepare": _prepare, "train": _train, "triplets": _triplets}
    with locked(folder, "preparing") as descriptors:
        for step in steps:
            say(f"before the runs: {step.kind} {step.object}")
            makers[step.kind](step, root, folder, descriptors)


def _prepare(step: Step, root: Path, folder: Path, descriptors: tuple[int, ...]) -> None:
    from ..corpora.preparation import prepare

    prepare(load_corpus(step.object), step.path("raw", root))


def _train(step: Step, root: Path, folder: Path, descriptors: tuple[int, ...]) -> None:
    """Train to the end, resuming what was interrupted; refuses a folder that was trained otherwise."""
    from ..config import check_config, training_command
    from .training_stages import run_child

    config = check_config(root / step.object, [], root)
    target = root / config["checkpoint"]["save_dir"]
    done = target / DONE
    if done.is_file():
        if parse_json(read_text(done, "the settings")) != config:
            raise UserError(f"{target} was trained with other settings; remove it to train again")
        return
    command, environment = training_command(root / step.object, [], root)
    log = folder / f"{step.object.replace('/', '-')}.log"
    run_child(f"{step.where}: training", command, log, descriptors, environment)
    write_json(done, config)


def _triplets(step: Step, root: Path, folder: Path, descriptors: tuple[int, ...]) -> None:
    from ..translation.black_box import write_triplets

    corpus = load_corpus(step.settings["corpus"]).require_prepared()
    write_triplets(root / step.object, corpus, step.path("output", root))
