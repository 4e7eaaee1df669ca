"""The last stages of a run: translations, scores, head statistics and loss, collected in one file."""

from __future__ import annotations

import json
import logging
import re
import statistics
import sys
from pathlib import Path

import torch
from fairseq.models import ARCH_MODEL_NAME_REGISTRY

from ..analysis.head_tables import alpha_and_density, by_attention, by_layer
from ..analysis.results import write_importance, write_statistics
from ..analysis.split import open_split
from ..benchmarks.machine import record
from ..bounded import bounded_lines
from ..config import PLUGIN
from ..errors import UserError
from ..io import write_json
from ..models.from_settings import OURS
from ..translation import evaluation as translation
from ..translation.loading import load_model
from ..translation.search_study import SearchStudy
from .folders import Job, read_json
from .training_stages import ROOT, run_child

SPEEDS, SEARCH = "speeds.json", "search"
logger = logging.getLogger(__name__)


def evaluate(job: Job) -> None:
    """Translate and score the validation and test sets."""
    speeds = _speeds(job)
    output = job.folder / "evaluation"
    missing = [
        split for split in splits(job) if split not in speeds or not (output / f"{split}.json").is_file()
    ]
    if not missing:
        return
    options = translation.Options(job.run.beam, new_piece_penalty=job.run.new_piece_penalty)
    for evaluation in translation.evaluate(job.average, job.corpus, missing, output, options):
        scores = evaluation.scores
        speeds[scores["test_set"]] = round(scores["sentences"] / evaluation.seconds, 2)
        write_json(job.folder / SPEEDS, speeds)


def heads(job: Job) -> None:
    """Compute head statistics on the validation set, unless it is a model of others."""
    output = job.average.with_suffix(".heads.json")
    if not output.is_file() and is_analysed(job):
        write_statistics(open_split(job.average, job.corpus), output)


def importance(job: Job) -> None:
    """Measure the effect of masking and pruning heads on a part of the validation set, if asked for."""
    output = job.average.with_suffix(".importance.json")
    if not output.is_file() and job.run.importance and is_analysed(job):
        write_importance(open_split(job.average, job.corpus, sentences=300), output)


def search(job: Job) -> None:
    """Measure what search finds on the test sets, if asked for."""
    asked = job.run.search
    for split in job.corpus.test_sets if asked else ():
        output = job.folder / SEARCH / f"{split}.json"
        if not output.is_file():
            study = SearchStudy(
                job.average, job.corpus, split, sentences=asked.sentences, min_words=asked.min_words
            )
            report = study.report(
                asked.beams, logger.info, exact=asked.exact, most_expansions=asked.most_expansions
            )
            write_json(output, report)


def is_analysed(job: Job) -> bool:
    """Whether the run's model is one whose heads can be analysed."""
    name = job.settings["config"]["model"]["_name"]
    return ARCH_MODEL_NAME_REGISTRY.get(name) in (*OURS, "transformer")


def loss(job: Job, descriptors: tuple[int, ...]) -> None:
    """Compute loss and perplexity on the validation set with fairseq-validate."""
    if _losses(job):
        return
    log = job.folder / "validate.log"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-W", "ignore::UserWarning", "-m", "fairseq_cli.validate", str(job.corpus.bin)]
    command += ["--user-dir", str(PLUGIN), "--path", str(job.average)]
    command += ["--task", "translation", "--valid-subset", "valid"]
    command += ["--max-tokens", "4096", "--log-format", "json"]
    for side in ("source", "target"):  # of the task, which may have restricted training to short sentences
        limit = job.settings["config"]["model"].get(f"max_{side}_positions")
        if limit is not None:
            command += [f"--max-{side}-positions", str(limit)]
    run_child("fairseq-validate", command, log, descriptors)


def conclude(job: Job) -> None:
    """Write all figures of the run to result.json."""
    if job.result.is_file():
        return
    task = job.settings["config"]["task"]
    direction = task["source_lang"], task["target_lang"]
    model, _ = load_model(job.average, job.corpus, direction, cpu=True)
    config = job.run.config.resolve()
    made = record("experiment", torch.device("cpu"), job.run.seed)
    write_json(
        job.result,
        {
            "experiment": job.run.experiment,
            "run": job.run.name,
            "seed": job.run.seed,
            "config": str(config.relative_to(ROOT) if ROOT in config.parents else config),
            "overrides": list(job.run.overrides),
            "corpus": job.corpus.name,
            "direction": "-".join(direction),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "averaged_epochs": job.run.average,
            "training": training_figures(job),
            "validation": validation_figures(job),
            "evaluation": evaluation_figures(job),
            "heads": head_figures(job),
            "search": search_figures(job),
            "made": {key: made[key] for key in ("date", "commit", "machine", "versions")},
        },
    )


def splits(job: Job) -> list[str]:
    """The public names of the splits to translate."""
    return ["valid", *job.corpus.test_sets]


def training_figures(job: Job) -> dict:
    """Updates, time and speed of training, from its log and its sessions.

    ``workers`` are the numbers of processes that shared the training, over its sessions.
    ``tokens_per_second`` is the median over the log's intervals of target tokens per second of wall time.
    ``tokens_per_processor_second`` is over the whole training, including start-up, validation and
    checkpoints, and None if training had several sessions. Times are None if a session was killed, because
    its time is unknown. ``alignment``, of a latent alignment, has what the log says of its last epoch.
    """
    lines = json_lines(job.folder / "training.log")
    inner = [float(line["wps"]) for line in lines if "wps" in line]
    epochs = {line["epoch"]: line for line in lines if "train_wpb" in line}
    tokens, updates = 0.0, 0
    for _, line in sorted(epochs.items()):
        tokens += float(line["train_wpb"]) * (int(line["train_num_updates"]) - updates)
        updates = int(line["train_num_updates"])
    sessions = read_json(job.folder / "training.json")["sessions"]
    seconds, processor = (
        sum(session[kind] for session in sessions) if all(kind in session for session in sessions) else None
        for kind in ("seconds", "processor_seconds")
    )
    once = processor and len(sessions) == 1
    speeds = inner or [float(line["train_wps"]) for line in epochs.values()]
    valid = [float(line["valid_loss"]) for line in lines if "valid_loss" in line]
    last = epochs[max(epochs)] if epochs else {}
    prefix = "train_alignment_"
    alignment = {key.removeprefix(prefix): float(last[key]) for key in last if key.startswith(prefix)}
    return {
        "updates": updates,
        "epochs": len(epochs),
        "sessions": len(sessions),
        "workers": sorted({session.get("workers", 1) for session in sessions}),
        "seconds": seconds,
        "processor_seconds": processor,
        "tokens": round(tokens),
        "tokens_per_second": statistics.median(speeds) if speeds else None,
        "tokens_per_processor_second": round(tokens / processor, 1) if once else None,
        "best_valid_loss_of_an_epoch": min(valid) if valid else None,
        **({"alignment": alignment} if alignment else {}),
    }


def validation_figures(job: Job) -> dict:
    """``loss`` (the criterion's, with label smoothing; cross-entropy's in base 2), ``nll_loss`` (in base 2),
    ``ppl``, and ``support``, the mean number of symbols with a probability.

    All but the first are None for a criterion without them.
    """
    lines = _losses(job)
    if not lines:
        raise UserError(f"fairseq-validate reported no loss; see {job.folder / 'validate.log'}")
    found = {name: lines[-1].get(f"valid_{name}") for name in ("loss", "nll_loss", "ppl", "support")}
    return {name: None if value is None else float(value) for name, value in found.items()}


def evaluation_figures(job: Job) -> dict:
    """The scores of each split, with the speed of beam search (wall time)."""
    speeds, figures = _speeds(job), {}
    for split in splits(job):
        found = read_json(job.folder / "evaluation" / f"{split}.json")
        specific = ("checkpoint", "checkpoint_sha256", "command", "references")  # to this machine and file
        figures[split] = {key: value for key, value in found.items() if key not in specific}
        figures[split]["sentences_per_second"] = speeds.get(split)
    return figures


def head_figures(job: Job) -> dict:
    """For each attention type: α by layer and head, its mean, minimum and maximum, and the mean density."""
    path = job.average.with_suffix(".heads.json")
    rows = read_json(path)["heads"] if path.is_file() else []
    return {
        kind: {"alpha": list(by_layer(mine, "alpha").values()), **alpha_and_density(mine)}
        for kind, mine in by_attention(rows).items()
    }


def search_figures(job: Job) -> dict:
    """What search found on each test set, without the translations."""
    figures = {}
    for file in sorted((job.folder / SEARCH).glob("*.json")):
        found = read_json(file)
        found.pop("checkpoint")
        found.get("exact", {}).pop("modes", None)
        figures[file.stem] = found
    return figures


def json_lines(log: Path) -> list[dict]:
    """The JSON objects in fairseq's log, each at the end of a line."""
    lines = []
    with log.open("rb") as file:
        for line in bounded_lines(file, log):
            found = re.search(
                r'\{"(?:epoch|valid_)[^{}]*\}$', line.decode("utf-8", errors="replace").rstrip()
            )
            if found:
                lines.append(json.loads(found.group()))
    return lines


def _losses(job: Job) -> list[dict]:
    log = job.folder / "validate.log"
    return [line for line in json_lines(log) if "valid_loss" in line] if log.is_file() else []


def _speeds(job: Job) -> dict[str, float]:
    """Sentences per second of beam search (wall time) for each translated split."""
    path = job.folder / SPEEDS
    return read_json(path) if path.is_file() else {}
