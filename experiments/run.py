#!/usr/bin/env python3
"""Run an experiment: train, average, evaluate and analyse the heads of each run of a YAML file.

    python experiments/run.py experiments/comparison.yaml --only 'de-en-*-seed1'

A run works in runs/EXPERIMENT/NAME-seedN. Existing files are kept, so that the same command goes on after
an interruption; a run with a result.json is finished. Scores, translations, α and statistics of heads, but no
models, are packed into experiments/records/EXPERIMENT.tar.xz, and unpacked from there into runs/.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from fnmatch import fnmatch
from os import times as processor_times
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.measure import machine  # noqa: E402
from user_dir.commands.options import Parser, run_command  # noqa: E402
from user_dir.errors import UserError  # noqa: E402
from user_dir.files import atomic_write, read_json, read_yaml, write_json  # noqa: E402

RUNS, RECORDS = ROOT / "runs", ROOT / "experiments" / "records"
KEPT = ("result.json", "alpha.jsonl", "average.heads.json", "average.importance.json", "evaluation/*")
# Overrides with stop_early: false. BLEU on validation would take time and decide nothing.
NEVER_EARLY = """checkpoint.best_checkpoint_metric=loss checkpoint.maximize_best_checkpoint_metric=false
    checkpoint.patience=-1 task.eval_bleu=false task.eval_bleu_args='{}' task.eval_bleu_remove_bpe=null"""


@dataclass
class Plan:
    """An experiment's file; its keys are these fields. ``before``: shell commands to run before the runs."""

    runs: list[dict]
    average: int | str = 5  # the last N epochs; last: the last update; ema: the moving average of training
    beam: int = 5
    importance: bool = True
    stop_early: bool = True
    new_piece_penalty: float | str | None = None
    before: list[str] = ()
    overrides: list[str] = ()


@dataclass
class Run:
    """One training, in ``folder``."""

    plan: Plan
    experiment: str
    folder: Path
    name: str
    seed: int
    config: str
    overrides: list[str]

    @property
    def label(self) -> str:
        """The run's name and seed, unique in the experiment."""
        return f"{self.name}-seed{self.seed}"


def read_plan(path: Path, folder: Path = RUNS, patterns: list[str] = ()) -> tuple[Plan, list[Run]]:
    """An experiment, and its runs in order: all, or those whose label matches one of the patterns."""
    runs = []
    try:
        plan = Plan(**read_yaml(path, "the experiment"))
        shared = [*([] if plan.stop_early else NEVER_EARLY.split()), *plan.overrides]
        for entry in plan.runs:
            entry = {"seeds": [1], "overrides": [], "of": path.stem, **entry}
            experiment, overrides = entry.pop("of"), [*shared, *entry.pop("overrides")]
            for seed in entry.pop("seeds"):
                run = Run(plan, experiment, folder / experiment, seed=seed, overrides=overrides, **entry)
                run.folder /= run.label
                runs.append(run)
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} is not an experiment: {error}") from None
    runs = [run for run in runs if not patterns or any(fnmatch(run.label, p) for p in patterns)]
    if not runs:
        raise UserError(f"no run of {path} matches --only {' '.join(patterns)}")
    return plan, runs


def unpack(experiment: str, folder: Path = RUNS, records: Path = RECORDS) -> Path:
    """Unpack the records of an experiment without overwriting files; returns its folder of runs."""
    archive, target = records / f"{experiment}.tar.xz", folder / experiment
    if archive.is_file():
        with tarfile.open(archive) as file:
            for member in file:
                if not (target / member.name).exists():
                    file.extract(member, target, filter="data")
    return target


def pack(experiment: str, folder: Path, records: Path) -> None:
    """Rewrite an experiment's archive with what is kept of finished runs, files of the same name together."""
    archive, source = records / f"{experiment}.tar.xz", folder / experiment
    kept = {file for done in source.glob("*/result.json") for name in KEPT for file in done.parent.glob(name)}
    if archive.is_file():
        with tarfile.open(archive) as file:
            kept |= {source / name for name in file.getnames()}
    with atomic_write(archive) as whole, tarfile.open(None, "w:xz", whole, format=tarfile.PAX_FORMAT) as file:
        for path in sorted(kept, key=lambda path: (path.name, path)):
            data = path.read_bytes()
            for place in (source, ROOT) if path.suffix == ".json" else ():  # removes paths of this machine
                data = data.replace(f"{place}/".encode(), b"")
            entry = tarfile.TarInfo(str(path.relative_to(source)))
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))


def call(log: Path, *words) -> None:
    """Run Python with these words in the repository's root, adding what it prints to ``log``."""
    command = [sys.executable, *map(str, words)]
    with log.open("a", encoding="utf-8") as file:
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    if done.returncode:
        raise UserError(f"{shlex.join(command[:4])} … ended with status {done.returncode}; see {log}")


def train(run: Run) -> None:
    """Train to the end, resuming from the last checkpoint; training.json has the times of each session."""
    path = run.folder / "training.json"
    sessions = read_json(path) if path.is_file() else []
    write_json(path, [*sessions, {}])  # the times of a session that is killed are unknown
    folder = str(run.folder).replace("'", r"\'")
    own = [f"common.seed={run.seed}", f"checkpoint.save_dir='{folder}'", "common.log_format=json"]
    begin, before = time.monotonic(), processor_times()
    call(run.folder / "training.log", "scripts/train.py", run.config, *run.overrides, *own, "--verbose")
    after = processor_times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    session = {"seconds": round(time.monotonic() - begin, 1), "processor_seconds": round(processor, 1)}
    write_json(path, [*sessions, session])


def average(run: Run) -> None:
    """Average the last epochs, or take the last update or its moving average; then remove all checkpoints."""
    paths = sorted(run.folder.glob("checkpoint[0-9]*.pt"), key=lambda path: (len(path.name), path.name))
    paths = [path for path in paths if path.stem.removeprefix("checkpoint").isdigit()]
    if run.plan.average in ("ema", "last"):
        words = ["--path", run.folder / "checkpoint_last.pt", *(["--ema"] * (run.plan.average == "ema"))]
    elif len(paths) < run.plan.average:
        raise UserError(f"average is {run.plan.average}, but {run.label} has {len(paths)} saved epochs")
    else:
        words = ["--path", *paths[-run.plan.average :]]
    call(run.folder / "log.txt", "scripts/average.py", *words, "--output", run.folder / "average.pt")
    for path in run.folder.glob("checkpoint*.pt"):
        path.unlink()


def make(run: Run) -> None:
    """Run the stages of a run whose files do not exist yet; the last stage writes result.json."""
    from user_dir.analysis.results import summary
    from user_dir.checkpoints import load_checkpoint, model_name, model_settings, task_settings
    from user_dir.corpora import load_corpus
    from user_dir.translation.loading import load_model

    def stage(file: str, script: str, *words) -> None:
        if not (run.folder / file).is_file():
            print(f"{time.strftime('%H:%M:%S')} {run.label}: {file}", flush=True)
            call(run.folder / "log.txt", script, *words)

    run.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = run.folder / "average.pt"
    if not checkpoint.is_file():
        print(f"{time.strftime('%H:%M:%S')} {run.label}: training", flush=True)
        train(run)
        average(run)
    state = load_checkpoint(checkpoint)
    task, settings = task_settings(state), model_settings(state)
    folder = (ROOT / task["data"]).parent
    corpus = load_corpus(folder.name, folder.parent)
    model = ["--path", checkpoint, "--corpus", corpus.name, "--data", folder.parent]
    search = ["--beam", run.plan.beam, "--output", run.folder / "evaluation"]
    if run.plan.new_piece_penalty is not None:
        search += ["--new-piece-penalty", run.plan.new_piece_penalty]
    splits = ["valid", *corpus.test_sets]
    search += [word for split in splits for word in ("--subset", split)]
    stage(f"evaluation/{splits[-1]}.json", "scripts/evaluate.py", *model, *search)
    if model_name(state).startswith(("adaptively_sparse", "transformer")):
        heads, importance = "average.heads.json", "average.importance.json"
        stage(heads, "scripts/heads.py", *model, "--output", run.folder / heads)
        if run.plan.importance:
            output = ["--importance", "--sentences", 300, "--output", run.folder / importance]
            stage(importance, "scripts/heads.py", *model, *output)
    validate = ["-W", "ignore", "-m", "fairseq_cli.validate", folder / "bin", "--path", checkpoint]
    validate += ["--user-dir", ROOT / "user_dir", "--task", "translation", "--valid-subset", "valid"]
    validate += ["--max-tokens", 4096, "--log-format", "json"]
    for side in ("source", "target"):  # the model's limits: training may have excluded longer sentences
        if settings.get(f"max_{side}_positions"):
            validate += [f"--max-{side}-positions", settings[f"max_{side}_positions"]]
    if not json_lines(run.folder / "validate.log", "valid_loss"):
        call(run.folder / "validate.log", *validate)
    losses = json_lines(run.folder / "validate.log", "valid_loss")
    direction = task["source_lang"], task["target_lang"]
    parameters = load_model(checkpoint, corpus, direction, cpu=True)[0].parameters()
    names = [name for name in ("loss", "nll_loss", "ppl", "support") if f"valid_{name}" in losses[-1]]
    statistics_file = run.folder / "average.heads.json"
    figures = {
        "experiment": run.experiment,
        "run": run.name,
        "seed": run.seed,
        "config": run.config,
        "overrides": run.overrides,
        "corpus": corpus.name,
        "direction": "-".join(direction),
        "parameters": sum(parameter.numel() for parameter in parameters),
        "averaged_epochs": run.plan.average,
        "training": training_figures(run.folder),
        "validation": {name: float(losses[-1][f"valid_{name}"]) for name in names},
        "evaluation": {split: read_json(run.folder / "evaluation" / f"{split}.json") for split in splits},
        "heads": summary(read_json(statistics_file)) if statistics_file.is_file() else {},
        "made": machine("experiment", seed=run.seed),
    }
    write_json(run.folder / "result.json", figures)


def training_figures(folder: Path) -> dict:
    """Updates, time, speed and, by epoch, validation losses of training, from its log and its sessions.

    ``tokens_per_second`` is the median over the log's intervals of target tokens per second of wall time.
    ``tokens_per_processor_second`` covers the whole training, and is None if it took several sessions. Times
    are None if a session was killed. ``alignment`` has a latent alignment's figures of the last epoch.
    """
    lines = json_lines(folder / "training.log", "epoch")
    epochs = {line["epoch"]: line for line in lines if "train_wpb" in line}
    tokens, updates = 0.0, 0
    for _, line in sorted(epochs.items()):
        tokens += float(line["train_wpb"]) * (int(line["train_num_updates"]) - updates)
        updates = int(line["train_num_updates"])
    validations = {line["epoch"]: float(line["valid_loss"]) for line in lines if "valid_loss" in line}
    sessions = read_json(folder / "training.json")
    times: dict[str, float | None] = {"seconds": None, "processor_seconds": None}
    if all(sessions):  # none was killed
        times = {kind: sum(session[kind] for session in sessions) for kind in times}
    processor = times["processor_seconds"] if len(sessions) == 1 else None
    speeds = [float(line["wps"]) for line in lines if "wps" in line]
    speeds = speeds or [float(line["train_wps"]) for line in epochs.values()]
    prefix, last = "train_alignment_", epochs[max(epochs)]
    alignment = {key.removeprefix(prefix): float(last[key]) for key in last if key.startswith(prefix)}
    return {
        "updates": updates,
        "epochs": len(epochs),
        "sessions": len(sessions),
        **times,
        "tokens": round(tokens),
        "tokens_per_second": statistics.median(speeds),
        "tokens_per_processor_second": processor and round(tokens / processor, 1),
        "valid_losses": list(validations.values()),
        **({"alignment": alignment} if alignment else {}),
    }


def json_lines(log: Path, key: str) -> list[dict]:
    """The JSON objects in fairseq's log, each at the end of a line, that have a key; none without a log."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    objects = (json.loads(line) for line in re.findall(r'\{"(?:epoch|valid_)[^{}]*\}$', text, re.MULTILINE))
    return [entry for entry in objects if key in entry]


def main() -> None:
    """Make what is missing of all runs, one after the other; a run that fails does not stop the others."""
    parser = Parser(__doc__)
    parser.add("plan", Path, "experiment, such as experiments/comparison.yaml", metavar="FILE.yaml")
    what = "only runs whose NAME-seedN matches, such as '*-seed1'; may be repeated"
    parser.add("--only", str, what, action="append", default=[], metavar="PATTERN")
    parser.add("--folder", Path, "folder of the runs (default: runs)", default=RUNS, metavar="DIR")
    what = "folder of the records (default: experiments/records); with an empty one, all runs are made anew"
    parser.add("--records", Path, what, default=RECORDS, metavar="DIR")
    args = parser.parse_args()
    folder, records = args.folder.resolve(), args.records.resolve()
    plan, runs = read_plan(args.plan, folder, args.only)
    for experiment in {run.experiment for run in runs}:
        unpack(experiment, folder, records)
    left = [run for run in runs if not (run.folder / "result.json").is_file()]
    for command in plan.before if left else ():
        print(f"before the runs: {command}", flush=True)
        if subprocess.run(command, shell=True, cwd=ROOT).returncode:
            raise UserError(f"failed before the runs: {command}")
    failed = []
    for run in left:
        try:
            make(run)
            pack(run.experiment, folder, records)
        except UserError as error:
            failed.append(f"  {run.label}: {error}")
            print(failed[-1], flush=True)
    if failed:
        raise UserError(f"{len(failed)} of {len(runs)} runs failed")


if __name__ == "__main__":
    # So that SIGTERM also ends the subprocess that is running.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    run_command(main, "interrupted; the same command goes on")
