"""What an experiment needs before its runs: prepared corpora, trainings, and triplets of a black-box MT.

A plan lists the steps under ``before``. They are made in this order; one that has been made with the same
settings is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ..corpora import load_corpus
from ..errors import UserError
from ..io import locked, name_fault, parse_json, read_text, shown, write_json

KINDS = {
    "prepare": ("raw",),  # a corpus, from the raw files in a folder
    "train": (),  # a config
    "triplets": ("corpus", "output"),  # a checkpoint, which translates a corpus to triplets
}
DONE = "done.json"


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


def make_steps(steps: list[Step], root: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Make every step that is not made yet.

    Args:
        steps: from :func:`.plan.read_steps`.
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

    prepare(load_corpus(step.object), None if step.raw is None else root / step.raw)


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
    run_child(f"training {step.object}", command, log, descriptors, environment)
    write_json(done, config)


def _triplets(step: Step, root: Path, folder: Path, descriptors: tuple[int, ...]) -> None:
    from ..translation.black_box import write_triplets

    corpus = load_corpus(step.corpus).require_prepared()
    write_triplets(root / step.object, corpus, root / step.output)
