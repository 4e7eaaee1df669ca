"""Measuring times and peak memory: contenders take turns in rounds; medians with quartiles."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.benchmark import timer  # waits for a GPU
from tqdm import tqdm

# Minimum duration of a run in seconds; faster functions are repeated.
MIN_RUN = 0.005


def interleaved(
    jobs: dict[Hashable, Callable[[int], float]], rounds: int, seed: int, what: str
) -> dict[Hashable, list[float]]:
    """Run every job once per round, in random order, so that disturbances affect all jobs alike.

    A job takes the number of the round. Returns the results of each job, by round.
    """
    order, draw = list(jobs), random.Random(seed)
    results: dict[Hashable, list[float]] = {name: [] for name in jobs}
    for number in tqdm(range(rounds), desc=what, unit="round", disable=None, leave=False):
        draw.shuffle(order)
        for name in order:
            results[name].append(jobs[name](number))
    return results


def time_calls(
    calls: dict[Hashable, Callable[[], Any]],
    rounds: int,
    seed: int,
    what: str,
    within: Callable[[Any], AbstractContextManager] = lambda name: contextlib.nullcontext(),
) -> dict[Hashable, list[float]]:
    """Seconds of each call, by round, after warming up; calls run ``within(name)``, which is not timed."""

    def run(name: Hashable, repeats: int, number: int) -> float:
        with within(name):
            return seconds(calls[name], repeats)

    jobs = {}
    for name, call in calls.items():
        with within(name):
            jobs[name] = functools.partial(run, name, warm_up(call))
    return interleaved(jobs, rounds, seed, what)


def seconds(function: Callable[[], Any], repeats: int = 1) -> float:
    """Mean time of a call."""
    begin = timer()
    for _ in range(repeats):
        function()
    return (timer() - begin) / repeats


def warm_up(function: Callable[[], Any]) -> int:
    """Call a function until it is compiled and cached; returns the number of repetitions per run."""
    function()
    return min(1000, math.ceil(MIN_RUN / max(seconds(function), 1e-9)))


def free_memory(device: torch.device) -> int:
    """Bytes of free memory on a GPU, or of available memory on Linux; elsewhere the machine's memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_memory(function: Callable[[], Any], device: torch.device) -> int:
    """Peak number of bytes that a call allocates with torch, excluding memory allocated before.

    On a CPU this is measured by the profiler, which records torch's allocations but not memory that a kernel
    takes from the operating system directly.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        function()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    held = np.cumsum([event.nbytes() for event in events])
    return max(0, int(held.max(initial=0)))


def quartiles(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, median, high = np.percentile(values, (25, 50, 75)).tolist()
    return {"median": median, "q1": low, "q3": high}


def ratio(values: list[float], others: list[float]) -> float:
    """Median over rounds of the ratio of ``values`` to ``others``."""
    return float(np.median(np.divide(values, others)))
