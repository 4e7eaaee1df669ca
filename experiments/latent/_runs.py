"""Runs of an experiment: each system at each learning rate, the best with all seeds; a record per run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct

from user_dir.checkout import ROOT
from user_dir.command_line import file_path, path_of
from user_dir.commands.options import new_parser
from user_dir.errors import UserError
from user_dir.io import make_folder, parse_json, read_text, write_json
from user_dir.packed_folders import there
from user_dir.schema import number
from user_dir.yaml_files import read_yaml_as

RECORDS = ROOT / "experiments" / "records" / "latent"
Train = Callable[[dict, dict, float, int], dict]


def main(description: str, train: Train, argv=None) -> None:
    """Read the command line and make the runs that have no record yet.

    Args:
        description: the docstring of the script.
        train: from the experiment's settings, a system's settings, a learning rate and a seed to the results
            of a run, of which ``validation`` is to be small.
    """
    parser = new_parser(description)
    add = parser.add_argument
    add("plan", type=file_path, metavar="FILE.yaml", help="settings, such as experiments/latent/game.yaml")
    add("--only", action="append", default=[], metavar="SYSTEM", help="this system only; may be repeated")
    add("--records", type=path_of, default=RECORDS, metavar="DIR", help="folder of the records")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    plan = read_plan(args.plan)
    unknown = set(args.only) - set(plan.systems)
    if unknown:
        raise UserError(f"--only {unknown.pop()}: {args.plan} has the systems {', '.join(plan.systems)}")
    folder = args.records / args.plan.stem
    for name, system in plan.systems.items():
        if not args.only or name in args.only:
            run_system(plan, name, system, folder, train)


class Plan(Struct):
    """An experiment's file."""

    settings: dict[str, Any]
    systems: Annotated[dict[str, dict], Meta(min_length=1)]
    learning_rates: Annotated[list[number(0)], Meta(min_length=1)]
    seeds: Annotated[list[int], Meta(min_length=1)]


def read_plan(path: Path) -> Plan:
    """Read an experiment's file; raises UserError if it is invalid."""
    return read_yaml_as(path, Plan)[0]


def run_system(plan: Plan, name: str, system: dict, folder: Path, train: Train) -> list[dict]:
    """The records of all seeds at the learning rate that is best with the first seed, on validation."""
    first, *others = plan.seeds
    tried = {rate: run(plan, name, system, rate, first, folder, train) for rate in plan.learning_rates}
    best = min(tried, key=lambda rate: tried[rate]["validation"])
    return [tried[best], *(run(plan, name, system, best, seed, folder, train) for seed in others)]


class Missing(UserError):
    """A run has no record yet."""


def recorded(plan: Plan, name: str, folder: Path) -> list[dict]:
    """The records that :func:`run_system` would return; raises Missing if there is none of some run."""

    def missing(_settings: dict, _system: dict, rate: float, seed: int) -> dict:
        raise Missing(f"{folder} has no record of {name} with learning rate {rate:g} and seed {seed}")

    return run_system(plan, name, plan.systems[name], folder, missing)


def run(plan: Plan, name: str, system: dict, rate: float, seed: int, folder: Path, train: Train) -> dict:
    """The record of a run, which is trained if there is none."""
    path = folder / f"{name}-lr{rate:g}-seed{seed}.json"
    settings = {"settings": plan.settings, "system": system, "learning_rate": rate, "seed": seed}
    if there(path):
        record = parse_json(read_text(path, "the record"))
        if {key: record.get(key) for key in settings} != json.loads(json.dumps(settings)):
            raise UserError(
                f"{path} was made with other settings; remove it, or name another folder by --records"
            )
        return record
    begin = time.perf_counter()
    torch.manual_seed(seed)
    results = train(plan.settings, system, rate, seed)
    record = {**settings, **results, "seconds": round(time.perf_counter() - begin, 1)}
    make_folder(path.parent)
    write_json(path, record)
    print(f"{path.stem}: validation {record['validation']:.4f}, {record['seconds']:.0f} s", flush=True)
    return record
