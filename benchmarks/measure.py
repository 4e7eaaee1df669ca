"""Measure times and peak memory, taking turns, and describe the machine."""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.benchmark import timer  # waits for a GPU

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # of this checkout, whatever else is installed

PACKAGES = ("torch", "fairseq-fixed", "entmax", "triton", "adasplash", "ctranslate2", "numpy")
MIN_RUN = 0.005  # seconds; faster functions are repeated


def machine(what: str, device: str = "cpu", seed: int = 1) -> dict:
    """The metadata of a report: date, command, commit, machine and versions."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    commit = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    installed = {package.metadata["Name"]: package.version for package in metadata.distributions()}
    return {
        "benchmark": what,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["python", *sys.argv]),
        "commit": subprocess.run(commit, cwd=ROOT, capture_output=True, text=True).stdout.strip() or None,
        "seed": seed,
        "machine": {
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "cpu": cpu[1] if cpu else platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "capability": torch.backends.cpu.get_cpu_capability(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: installed[name] for name in PACKAGES if name in installed},
        },
    }


def in_turns(jobs: dict[Any, Callable[[int], float]], rounds: int, seed: int = 1) -> dict[Any, list[float]]:
    """Run every job once per round, in random order, so that disturbances affect all jobs alike.

    A job takes the number of the round. Returns the results of each job, by round.
    """
    order, draw = list(jobs), random.Random(seed)
    results: dict[Any, list[float]] = {name: [] for name in jobs}
    for number in range(rounds):
        draw.shuffle(order)
        for name in order:
            results[name].append(jobs[name](number))
    return results


def time_calls(calls: dict[Any, Callable[[], Any]], rounds: int, seed: int = 1) -> dict[Any, list[float]]:
    """Seconds of each call, by round, after warming up; short calls are repeated."""

    def job(call: Callable[[], Any]) -> Callable[[int], float]:
        call()
        repeats = min(1000, math.ceil(MIN_RUN / max(seconds(call), 1e-9)))
        return lambda _: seconds(call, repeats)

    return in_turns({name: job(call) for name, call in calls.items()}, rounds, seed)


def seconds(call: Callable[[], Any], repeats: int = 1) -> float:
    """Mean time of a call."""
    begin = timer()
    for _ in range(repeats):
        call()
    return (timer() - begin) / repeats


def peak_memory(call: Callable[[], Any], device: str = "cpu") -> int:
    """Peak number of bytes that a call allocates with torch, excluding memory allocated before.

    On a CPU the profiler records torch's allocations, but not memory that a kernel takes directly.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        call()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(0, int(np.cumsum([event.nbytes() for event in events]).max(initial=0)))


def ratio(values: list[float], others: list[float]) -> float:
    """Median over rounds of the ratio of ``values`` to ``others``."""
    return float(np.median(np.divide(values, others)))


def new_parser(description: str, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options of all benchmarks."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--cpu", action="store_true", help="do not use a GPU")
    add("--threads", type=int, metavar="N", help="CPU threads (default: all cores)")
    add("--seed", type=int, default=1, metavar="N", help="random seed (default: 1)")
    add("--rounds", type=int, default=rounds, metavar="N", help=f"rounds to measure (default: {rounds})")
    add("--quick", action="store_true", help="measure as little as possible, for a first look")
    name = Path(sys.argv[0]).stem
    output = ROOT / "runs" / "benchmarks" / f"{name}.json"
    add("--output", type=Path, default=output, metavar="FILE.json", help="report")
    return parser


def begin(args: argparse.Namespace) -> tuple[str, dict]:
    """The device, and the report with the metadata."""
    args.rounds = min(args.rounds, 3) if args.quick else args.rounds
    device = "cpu" if args.cpu or not torch.cuda.is_available() else "cuda"
    if args.threads:
        torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")  # torch, fairseq and hydra warn of their own deprecations
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler
    return device, {**machine(Path(sys.argv[0]).stem, device, args.seed), "rounds": args.rounds}


def table(rows: list[dict]) -> str:
    """Rows as Markdown, with their keys as headers; a row may lack some."""
    from user_dir.files import markdown

    def cell(value) -> str:
        if isinstance(value, float):
            return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        return "" if value is None else str(value)

    headers = list(dict.fromkeys(key for row in rows for key in row))
    return markdown([[cell(row.get(key)) for key in headers] for row in rows], headers)
