"""The folder of a run: its settings and its progress."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from ..corpora import Corpus, load_corpus, stamps
from ..errors import UserError, printable
from ..io import Busy, locked, parse_json, read_text, within, write_json
from ..packed_folders import there
from .plan import Run
from .result_tables import read_result
from .settings import plain_settings, surely_equal

SETTINGS, AVERAGE, RESULT = "settings.json", "average.pt", "result.json"
OLD_SETTINGS = "asked.json"
"""What earlier versions called ``settings.json``, also in records."""


@dataclass(frozen=True)
class Job:
    """A validated run with its folders."""

    run: Run
    folder: Path
    record: Path  # the folder of its record
    corpus: Corpus
    settings: dict  # all that determine the results

    @property
    def average(self) -> Path:
        """The averaged checkpoint."""
        return self.folder / AVERAGE

    @property
    def result(self) -> Path:
        """The file of all figures of the run; written last."""
        return self.folder / RESULT

    @property
    def failure(self) -> Path:
        """The file with the error of a failed run."""
        return self.folder / "failed.txt"

    def lock(self, doing: str = "at work in"):
        """Prevent other processes from working in the folder."""
        return locked(self.folder, doing)


def open_job(run: Run, root: Path, place: Path, records: Path) -> Job:
    """Validate a run's config, overrides and data; writes nothing.

    Args:
        run: a run of an experiment.
        root: the folder that paths in its config are relative to.
        place: the parent folder of the experiments.
        records: the parent folder of the records.

    Raises:
        UserError: with the first problem found, including links that lead outside these folders.
    """
    folder = within(place, place / run.experiment / run.label)
    record = within(records, records / run.experiment / run.label)
    overrides = (*run.overrides, f"common.seed={run.seed}")
    corpus, settings = _recorded(run, overrides, root, record) or _checked(run, overrides, root, record)
    return Job(run, folder, record, corpus, stamps.as_json(settings))


def _recorded(run: Run, overrides: tuple[str, ...], root: Path, record: Path) -> tuple[Corpus, dict] | None:
    """Corpus and settings of a run whose record certainly has the same ones; None if that is not certain.

    These settings were validated when the run was made.
    """
    if not there(record / RESULT):
        return None
    try:
        config, before = plain_settings(run.config.resolve(), overrides), _settings_of(record, run)
        if config is None:
            return None
        settings = {"config": config, "data": before.get("data"), **_of_plan(run)}
        corpus = _corpus(run, config, root)
    except UserError:  # reported by the complete check
        return None
    stamp = corpus.bin / "stamp.json"
    if stamp.is_file() and not (stamps.read_stamp(stamp) and stamps.fingerprint(stamp) == before.get("data")):
        return None
    if not surely_equal(before, stamps.as_json(settings)):
        return None
    return corpus, settings


def _checked(run: Run, overrides: tuple[str, ...], root: Path, record: Path) -> tuple[Corpus, dict]:
    """Corpus and settings of a run, validated with fairseq."""
    from ..config import check_config, check_settings, hydra_overrides  # imports fairseq, which takes seconds

    file = run.config.resolve()
    words = hydra_overrides(file, overrides)
    try:
        # Use the config's save_dir, not the run's folder, so that the folder can be moved.
        config = check_config(file, words, root)
        corpus = _corpus(run, config, root).require_prepared()
        data = stamps.fingerprint(corpus.bin / "stamp.json")
    except UserError:
        if not there(record / RESULT):
            raise
        config = check_settings(file, words)  # a record can be read without the data
        corpus = _corpus(run, config, root)
        data = read_json(settings_file(record)).get("data")
    _check_average(run, config)
    return corpus, {"config": config, "data": data, **_of_plan(run)}


def _check_average(run: Run, config: dict) -> None:
    """Raises UserError, before training, if it would not leave the checkpoints that the plan averages."""
    checkpoint, wanted = config.get("checkpoint", {}), run.average
    kept, every = (checkpoint.get(name) or 0 for name in ("keep_last_epochs", "save_interval"))
    epochs = (config.get("optimization", {}).get("max_epoch") or 0) // (every or 1)  # 0: no limit
    fault = ""
    if wanted == "ema":
        if not config.get("ema", {}).get("store_ema"):
            fault = "ema.store_ema is not true; set it"
    elif checkpoint.get("no_epoch_checkpoints") or checkpoint.get("no_save"):
        fault = "no checkpoints of epochs are saved; remove checkpoint.no_epoch_checkpoints and no_save"
    elif 0 < kept < wanted:
        fault = f"checkpoint.keep_last_epochs is {kept}; set it to {wanted}, or average to {kept}"
    elif 0 < epochs < wanted:
        fault = f"optimization.max_epoch allows {epochs}; raise it, or set average to {epochs}"
    if fault:
        raise UserError(f"{run.config}: {run.label} has average {wanted}, but {fault}")


def _of_plan(run: Run) -> dict:
    """What the plan decides about all after training; beam and penalty only if not the default, as in older
    records, which lack importance and search: see :func:`_settings_of`.
    """
    penalty = {} if run.new_piece_penalty is None else {"new_piece_penalty": run.new_piece_penalty}
    beam = {} if run.beam == 5 else {"beam": run.beam}
    search = run.search and structs.asdict(run.search)
    return {"average": run.average, **beam, **penalty, "importance": run.importance, "search": search}


def _corpus(run: Run, config: dict, root: Path) -> Corpus:
    data = root / config["task"]["data"]
    if data.name != "bin":
        raise UserError(
            f"{run.config}: task.data is {config['task']['data']}; an experiment needs DATA/CORPUS/bin, as "
            "written by scripts/prepare.py"
        )
    return load_corpus(data.parent.name, data.parent.parent)


def is_recorded(job: Job) -> bool:
    """Whether the run has a record; raises UserError if the record has different settings."""
    if not there(job.record / RESULT):
        return False
    different = differences(job, job.record)
    if different:
        raise UserError(
            f"{job.record} has different settings: {different}; to repeat the run, choose another folder "
            "with --records"
        )
    return True


def claim(job: Job) -> None:
    """Write the settings to a new folder; for an existing one, check that they are the same.

    Raises:
        UserError: the folder has different settings; the message names them.
    """
    different = differences(job, job.folder)
    if different:
        raise UserError(
            f"{job.folder} has different settings: {different}; rename or remove the folder to train again"
        )
    if not settings_file(job.folder).is_file() or not there(job.average):
        write_json(job.folder / SETTINGS, job.settings)


def differences(job: Job, folder: Path) -> str:
    """Describe how the settings of a folder differ from those of the job; empty if they are equal."""
    if not there(settings_file(folder)):
        return f"it has checkpoints, but no {SETTINGS}" if any(folder.glob("*.pt")) else ""
    settings = _settings_of(folder, job.run)
    if surely_equal(settings, job.settings):
        return ""
    before, now = (_flat(_significant(each)) for each in (settings, job.settings))
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    told = [f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in changed[:3]]
    more = [f"{len(changed) - 3} more"] if len(changed) > 3 else []
    return ", ".join([*told, *more])


def settings_file(folder: Path) -> Path:
    """The file of a run's settings in its folder, or in that of its record."""
    old = folder / OLD_SETTINGS
    return old if there(old) else folder / SETTINGS


def _settings_of(folder: Path, run: Run) -> dict:
    """The settings in a folder, but importance and search as the run has them, unless it asks for others.

    A folder may have what the run does not ask for. Older settings lack both; results tell of the search.
    Until a folder has an average, any may be asked for.
    """
    settings, now = read_json(settings_file(folder)), stamps.as_json(_of_plan(run))
    if "search" not in settings:
        settings["search"] = _searched(folder, now["search"]) if now["search"] else None
    kept = {key: now[key] for key in ("importance", "search") if not now[key] or key not in settings}
    if not any(there(folder / name) for name in (AVERAGE, RESULT)):
        kept["average"] = now["average"]
    return {**settings, **kept}


def _searched(folder: Path, asked: dict) -> dict | None:
    """What a folder was searched with: ``asked``, unless the result has other beams or sentences, or none."""
    if not there(folder / RESULT):
        return asked
    result = read_result(folder / RESULT)
    for test, scores in result["evaluation"].items():
        found = result.get("search", {}).get(test)
        if test == "valid":
            continue
        if found is None:
            return None
        beams, sentences = [each["beam"] for each in found["beams"]], found.get("sentences")
        most = min(asked["sentences"] or math.inf, scores.get("sentences") or math.inf)
        as_many = sentences in (None, most) or (asked["min_words"] > 1 and sentences < most)
        if beams != asked["beams"] or not as_many:
            return {**asked, "beams": beams, "sentences": sentences}
    return asked


def _significant(settings: dict) -> dict:
    from ..config import significant_settings  # imports fairseq, which takes seconds

    config = settings.get("config")
    return {**settings, "config": significant_settings(config)} if isinstance(config, dict) else settings


def state(job: Job) -> str:
    """The state of a run in a word or two, with the reason if something is wrong; for a terminal."""
    return printable(_state(job))


def _state(job: Job) -> str:
    try:
        if there(job.record / RESULT):
            different = differences(job, job.record)
            return f"changed: {different}" if different else "done"
        if not job.folder.is_dir():
            return "to do"
        with job.lock():
            different = differences(job, job.folder)
            if different:
                return f"changed: {different}"
            if job.failure.is_file():
                return "failed: " + read_text(job.failure, "the failure").strip()
            return "interrupted" if settings_file(job.folder).is_file() else "to do"
    except Busy:
        return "running"
    except UserError as error:
        return f"failed: {error}"


def read_json(path: Path) -> dict:
    """Read a file written by a run; raises UserError if it is corrupt."""
    try:
        values = parse_json(read_text(path, "the record"))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{path} is corrupt; remove the folder {path.parent} to train again")
    return values


def _flat(values: dict, prefix: str = "") -> dict:
    flat = {}
    for key, value in values.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return flat
