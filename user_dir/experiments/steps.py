"""What an experiment needs before its runs: prepared corpora, trainings, and triplets of a black-box MT.

A plan lists the steps under ``before``. They are made in this order; one that has been made with the same
settings is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..corpora import load_corpus, stamps
from ..errors import UserError
from ..io import locked, parse_json, read_text, write_json
from .plan import Step

DONE = "done.json"
BEGUN = "begun.json"
"""With which settings and data a training began, which may since have been interrupted."""


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
    target = root / ((config.get("checkpoint") or {}).get("save_dir") or "checkpoints")
    done, begun = target / DONE, target / BEGUN
    stamp = root / config["task"]["data"] / "stamp.json"
    data = stamps.fingerprint(stamp) if stamps.read_stamp(stamp) else None
    now = stamps.as_json({"config": config, "data": data})
    checked = {done: now["config"], begun: now} if done.is_file() or any(target.glob("*.pt")) else {}
    for file, settings in checked.items():
        if file.is_file() and parse_json(read_text(file, "the settings")) != settings:
            raise UserError(f"{target} was trained with other settings or data; remove it to train again")
    if done.is_file():
        return
    command, environment = training_command(root / step.object, [], root)
    log = folder / f"{step.object.replace('/', '-')}.log"
    write_json(begun, now)
    run_child(f"training {step.object}", command, log, descriptors, environment)
    write_json(done, config)


def _triplets(step: Step, root: Path, folder: Path, descriptors: tuple[int, ...]) -> None:
    from ..translation.black_box import write_triplets

    corpus = load_corpus(step.corpus).require_prepared()
    write_triplets(root / step.object, corpus, root / step.output)
