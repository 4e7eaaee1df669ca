"""The folder of a run: what was asked for, how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import check_config, check_settings, hydra_override
from ..corpora import Corpus, load_corpus, stamps
from ..errors import UserError
from ..io import Busy, locked, parse_json, within, write_json
from .plan import Run

ASKED, RESULT = "asked.json", "result.json"


@dataclass(frozen=True)
class Job:
    """A run, checked, with its place on the disk."""

    run: Run
    folder: Path
    record: Path  # the folder of what is kept of it
    corpus: Corpus
    asked: dict  # all that decides what comes out

    @property
    def average(self) -> Path:
        """The averaged checkpoint."""
        return self.folder / "average.pt"

    @property
    def result(self) -> Path:
        """All figures of the run; written last."""
        return self.folder / RESULT

    @property
    def failure(self) -> Path:
        """Why it came to no end, if it did not."""
        return self.folder / "failed.txt"

    def lock(self, doing: str = "at work in"):
        """Keep other processes off the folder."""
        return locked(self.folder, doing)


def open_job(run: Run, root: Path, place: Path, records: Path) -> Job:
    """Check a run's config, overrides and data; nothing is written.

    Args:
        run: of an experiment.
        root: the folder that paths in its config start from.
        place: the folder under which each experiment has one.
        records: the same of what is kept of the runs.

    Raises:
        UserError: naming the first thing that is wrong, links that lead out of these folders included.
    """
    folder = within(place, place / run.experiment / run.label)
    record = within(records, records / run.experiment / run.label)
    overrides = [hydra_override(each) for each in (*run.overrides, f"common.seed={run.seed}")]
    settings = run.config.resolve()
    try:
        # With the save_dir that the config names, not the run's own, so that a run can be moved.
        config = check_config(settings, overrides, root)
        corpus = _corpus(run, config, root).require_prepared()
        data = stamps.fingerprint(corpus.bin / "stamp.json")
    except UserError:
        if not (record / RESULT).is_file():
            raise
        config = check_settings(settings, overrides)  # looking at a record takes no data
        corpus = _corpus(run, config, root)
        data = read_json(record / ASKED).get("data")
    asked = {"config": config, "data": data, "average": run.average}
    return Job(run, folder, record, corpus, stamps.as_json(asked))


def _corpus(run: Run, config: dict, root: Path) -> Corpus:
    data = root / config["task"]["data"]
    if data.name != "bin":
        raise UserError(
            f"{run.config}: task.data is {config['task']['data']}; an experiment takes DATA/CORPUS/bin, as "
            "scripts/prepare.py makes it"
        )
    return load_corpus(data.parent.name, data.parent.parent)


def is_recorded(job: Job) -> bool:
    """Whether there is a record of the run; raises UserError where it is of other settings."""
    if not (job.record / RESULT).is_file():
        return False
    different = differences(job, job.record)
    if different:
        raise UserError(
            f"{job.record} is of other settings: {different}; to make the run anew, remove the record "
            "or give another folder with --records"
        )
    return True


def claim(job: Job) -> None:
    """Note what is asked for in a new folder; in an older one, check that it is the same.

    Raises:
        UserError: the folder is of something else; it says what is different.
    """
    different = differences(job, job.folder)
    if different:
        raise UserError(
            f"{job.folder} is of other settings: {different}; rename or remove the folder to train anew"
        )
    if not (job.folder / ASKED).is_file():
        write_json(job.folder / ASKED, job.asked)


def differences(job: Job, folder: Path) -> str:
    """What the folder was made with and what is asked for now, where they differ; empty if nowhere."""
    path = folder / ASKED
    if not path.is_file():
        return "it has checkpoints, but no asked.json" if any(folder.glob("*.pt")) else ""
    before, now = _flat(read_json(path)), _flat(job.asked)
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    told = [f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in changed[:3]]
    more = [f"{len(changed) - 3} more"] if len(changed) > 3 else []
    return ", ".join([*told, *more])


def state(job: Job) -> str:
    """In a word or two, and for what has gone wrong with its reason."""
    try:
        if (job.record / RESULT).is_file():
            different = differences(job, job.record)
            return f"changed: {different}" if different else "done"
        if not job.folder.is_dir():
            return "to do"
        with job.lock():
            different = differences(job, job.folder)
            if different:
                return f"changed: {different}"
            if job.failure.is_file():
                return "failed: " + job.failure.read_text(encoding="utf-8").strip()
            return "interrupted" if (job.folder / ASKED).is_file() else "to do"
    except Busy:
        return "running"
    except UserError as error:
        return f"failed: {error}"


def read_json(path: Path) -> dict:
    """A file that a run wrote; raises UserError where it is not whole."""
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{path} is broken; remove the folder {path.parent} to train anew")
    return values


def _flat(values: dict, prefix: str = "") -> dict:
    flat = {}
    for key, value in values.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return flat
