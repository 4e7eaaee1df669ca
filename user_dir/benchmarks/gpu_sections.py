"""What ``scripts/gpu.py`` does on a GPU, section by section; each runs in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from .. import models  # noqa: F401  registers the models
from ..checkout import ROOT
from ..tables import markdown
from .attention import (
    CAUSAL_SENTENCES,
    SENTENCES,
    alpha_error,
    attention_table,
    target,
    time_attention,
    verdict_table,
    verdicts,
)
from .end_to_end import build, time_training, time_translation
from .gpu_job import Job
from .machine import write_measurements
from .paper_section import paper
from .peer_systems import ALPHA_ENTMAX, SOFTMAX, STOCK, Variant
from .random_tokens import RandomCorpus
from .speed import speed_table

TESTS = ("tests/graphs", "tests/decoding", "tests/attention", "tests/entmax", "tests/modules", "tests/models")
CONFIG = "configs/multi30k-de-en/alpha_entmax.yaml"
EAGER = Variant(f"{ALPHA_ENTMAX.name}, without graphs", (*ALPHA_ENTMAX.flags, "--cuda-graphs", "off"))
STOCK_GRAPHS = Variant(f"{STOCK.name}, graphs", ("--cuda-graphs", "on"), stock=True)


def tests(job: Job) -> None:
    """The tests of kernels, graphs and search, on the GPU instead of in Triton's interpreter."""
    chosen = job.least(["tests/attention/test_alpha.py"], TESTS)
    options = ("-q", "-nlogical", "--maxprocesses=8", "-m", "not nightly")
    seconds = job.run("-m", "pytest", *options, *chosen, show=True)
    job.done("seconds", seconds, f"tests: passed in {seconds:.0f} s")


def models_(job: Job) -> None:
    """Training of base models on random tokens, by fairseq's trainer in bfloat16."""
    for tokens, least in job.least(((60, 0.0),), ((4096, 3.0), (16384, 1.8))):
        with tempfile.TemporaryDirectory() as scratch:
            corpus = RandomCorpus(Path(scratch)).write(job.least(60, 60000), job.seed)
            workshop = job.workshop(corpus, "base", "bf16", tokens, Path(scratch))
            updates, rounds = job.least((1, 1), (20, 3))
            runners = build(workshop, (STOCK, STOCK_GRAPHS, EAGER, ALPHA_ENTMAX))
            rows = time_training(runners, updates, rounds, job.seed)
        to_stock = next(row.get("to_stock", 0.0) for row in rows if row["system"] == ALPHA_ENTMAX.name)
        reached = target(
            f"time per token / stock, {tokens} tokens", 1 / max(least, 1e-9), 1 / max(to_stock, 1e-9)
        )
        title = f"training, base model, random tokens, {tokens} per update"
        tables = f"{title}\n\n{speed_table(rows, 'tokens_per_second')}\n\n{verdict_table([reached])}"
        job.done(f"{tokens} tokens", {"systems": rows, "aims": [reached]}, tables)


def training(job: Job) -> None:
    """``fairseq-train --fp16``, from the start of the process to its last update."""
    updates = job.least(2, 250)
    plugin = ["--user-dir", ROOT / "user_dir"]
    for size in job.least(("tiny",), ("base", "tiny")):
        systems = {STOCK: [], EAGER: plugin, ALPHA_ENTMAX: plugin}
        with tempfile.TemporaryDirectory() as scratch:
            workshop = job.workshop(job.prepared(), size, "fp16", job.least(300, 4096), Path(scratch))
            until = ["--max-update", updates, "--no-save", "--disable-validation", "--log-interval", 50]
            times = {
                system: job.run("-m", "fairseq_cli.train", *workshop.arguments(system), *until, *more)
                for system, more in systems.items()
            }
        lines = [
            [system.name, f"{seconds:.1f}", f"{times[STOCK] / seconds:.2f}"]
            for system, seconds in times.items()
        ]
        tables = markdown(lines, ["system", "seconds", "×stock"])
        title = f"fairseq-train, {size}, {updates} updates, from start to end of the process"
        found = {system.name: seconds for system, seconds in times.items()}
        job.done(size, found, f"{title}\n\n{tables}")


def multi30k(job: Job) -> None:
    """A whole training with a config of the project, and the scores of both test sets."""
    with tempfile.TemporaryDirectory() as kept:
        settings = [f"task.data={job.prepared().bin}", f"checkpoint.save_dir={kept}"]
        settings += job.least(["optimization.max_update=2"], ["common.bf16=true"])
        seconds = job.run("scripts/train.py", CONFIG, *settings)
        job.done("training", seconds, f"{CONFIG}: trained in {seconds:.0f} s")
        best = Path(kept) / "checkpoint_best.pt"
        corpus = ["--corpus", job.corpus, *(["--data", job.data] if job.data else [])]
        seconds = job.run("scripts/evaluate.py", "--path", best, *corpus, show=True)
        job.done("evaluation", seconds, f"translated and scored in {seconds:.0f} s; scores are above")


def translation(job: Job) -> None:
    """Beam search with float16, the same number of steps for all."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus = job.prepared()
        workshop = job.workshop(corpus, "iwslt", "fp16", 4096, Path(scratch))
        runners = build(workshop, (STOCK, SOFTMAX, ALPHA_ENTMAX))
        subset = next(iter(corpus.test_sets.values()))
        sentences, beam, rounds = job.least((4, 2, 1), (1000, 5, 3))
        rows = time_translation(runners, subset, sentences, beam, rounds, job.seed)
    title = f"translation, iwslt size, {sentences} sentences, beam {beam}"
    job.done("systems", rows, f"{title}\n\n{speed_table(rows, 'sentences_per_second')}")


def attention(job: Job) -> None:
    """Attention alone, beside softmax and other implementations of α-entmax."""
    dtype = job.least(torch.float32, torch.bfloat16)
    rows: list[dict] = []
    for causal, usual in ((False, SENTENCES), (True, CAUSAL_SENTENCES)):
        for length, sentences in job.least({4: 1}, usual).items():
            settings = job.least(1, 7), job.seed, job.device, dtype
            rows += time_attention(length, sentences, *settings, causal=causal)
            job.report["rows"] = rows
            write_measurements(job.output, job.report)
    error = alpha_error(job.least(4, 128), job.seed, job.device, dtype)
    aims = verdicts(rows, error)
    job.done("aims", aims, attention_table(rows) + "\n\n" + verdict_table(aims))


# name → what to do, and the seconds that it may take; most important first
SECTIONS: dict[str, tuple[Callable[[Job], None], int]] = {
    "tests": (tests, 90),
    "models": (models_, 90),
    "training": (training, 120),
    "translation": (translation, 60),
    "multi30k": (multi30k, 110),
    "attention": (attention, 70),
}
# the same of those that run only if they are named
NAMED: dict[str, tuple[Callable[[Job], None], int]] = {"paper": (paper, 575)}
