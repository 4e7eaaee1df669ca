"""Runs of an experiment: each system at each learning rate, the best with all seeds; a record per run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from experiments.run import RUNS, unpack
from user_dir.commands.options import Parser
from user_dir.files import markdown, mean_and_deviation, read_json, read_yaml, write_json

FOLDER = RUNS / "latent"
Train = Callable[[dict, dict, float, int], dict]
Figure = tuple[str, str, float, str]
"""A figure of the test set: its name, the header of its column, its scale and format."""


def main(description: str, train: Train, figure: Figure, argv=None) -> None:
    """Make the runs of the plan on the command line that have no record yet, and print the table.

    ``train`` takes the settings of the experiment and of a system, a learning rate and a seed, and returns
    the results of a run, of which a lower ``validation`` is better.
    """
    parser = Parser(description)
    parser.add("plan", Path, "settings, such as experiments/latent/game.yaml", metavar="FILE.yaml")
    parser.add("--only", str, "this system only; may be repeated", action="append", metavar="SYSTEM")
    parser.add("--folder", Path, "of the records (default: runs/latent)", default=FOLDER, metavar="DIR")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if args.folder == FOLDER:
        unpack("latent")
    plan, rows = read_yaml(args.plan), []
    name, header, scale, form = figure
    for system in args.only or plan["systems"]:
        runs = system_runs(plan, system, args.folder / args.plan.stem, train)
        score = mean_and_deviation((scale * run["test"][name] for run in runs), form)
        calls = statistics.mean(run["calls"] for run in runs)
        training = statistics.mean(statistics.mean(point["calls"] for point in run["curve"]) for run in runs)
        rows.append([system, score, f"{calls:.2f}", f"{training:.2f}", f"{runs[0]['learning_rate']:g}"])
    print(markdown(rows, ["system", header, "calls", "calls, mean of training", "learning rate"]))


def system_runs(plan: dict, name: str, folder: Path, train: Train) -> list[dict]:
    """The records of all seeds, at the learning rate that is best on validation with the first seed."""
    first, *others = plan["seeds"]
    tried = {rate: record(plan, name, rate, first, folder, train) for rate in plan["learning_rates"]}
    best = min(tried, key=lambda rate: tried[rate]["validation"])
    return [tried[best], *(record(plan, name, best, seed, folder, train) for seed in others)]


def record(plan: dict, name: str, rate: float, seed: int, folder: Path, train: Train) -> dict:
    """The record of a run, which is trained if there is none."""
    path = folder / f"{name}-lr{rate:g}-seed{seed}.json"
    if path.is_file():
        return read_json(path)
    settings, system = plan["settings"], plan["systems"][name]
    begin = time.perf_counter()
    torch.manual_seed(seed)
    results = train(settings, system, rate, seed)
    made = {"settings": settings, "system": system, "learning_rate": rate, "seed": seed, **results}
    made["seconds"] = round(time.perf_counter() - begin, 1)
    write_json(path, made)
    print(f"{path.stem}: validation {made['validation']:.4f}, {made['seconds']:.0f} s", flush=True)
    return made
