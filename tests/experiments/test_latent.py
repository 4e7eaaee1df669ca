"""The experiments with latent choices: every system trains, and a finished run is not made again."""

import json
from pathlib import Path

import pytest
import yaml

from experiments import run, tables
from experiments.latent import bit_vectors, game, runs

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "game": {
        "concepts": 20,
        "symbols": 24,
        "candidates": 3,
        "updates": 4,
        "report": 2,
        "evaluation_rounds": 50,
    },
    "bit_vectors": {"bits": 3, "hidden": 4, "batch": 300, "epochs": 1, "report": 1, "samples": 2},
}


def small(name: str, folder: Path, **changes) -> Path:
    """An experiment's YAML with small sizes, one learning rate and one seed."""
    plan = yaml.safe_load((ROOT / "experiments" / "latent" / f"{name}.yaml").read_text())
    plan["settings"].update(SMALL[name])
    for system in plan["systems"].values():
        if "budget" in system:
            system["budget"] = 2
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**plan, "learning_rates": [0.01], "seeds": [1], **changes}))
    return path


@pytest.mark.parametrize("module", [game, pytest.param(bit_vectors, marks=pytest.mark.nightly)])
def test_every_system_trains(module, tmp_path):
    name = module.__name__.split(".")[-1]
    path = small(name, tmp_path)
    runs.main("", module.train, module.FIGURE, [str(path), "--folder", str(tmp_path)])
    systems = yaml.safe_load(path.read_text())["systems"]
    assert {file.name.split("-")[0] for file in (tmp_path / name).iterdir()} == set(systems)
    for system, settings in systems.items():
        record = json.loads((tmp_path / name / f"{system}-lr0.01-seed1.json").read_text())
        assert record["system"] == settings and 0 <= record["test"][module.FIGURE[0]] < 5
        calls = {"dense": 24, "sfe_plus": 2}.get(system)
        if system in ("sfe", "nvil", "gumbel", "straight_through"):
            calls = 1
        assert calls is None or record["calls"] == calls


def test_the_best_learning_rate_is_used_for_all_seeds_and_runs_are_made_once(tmp_path):
    made = []

    def train(settings, system, rate, seed):
        made.append((rate, seed))
        return {
            "validation": abs(rate - 0.02),
            "test": {"success": seed},
            "calls": 1,
            "curve": [{"calls": 1}],
        }

    path = small("game", tmp_path, learning_rates=[0.01, 0.02, 0.05], seeds=[1, 2], systems={"x": {}})
    for _ in range(2):
        runs.main("", train, game.FIGURE, [str(path), "--folder", str(tmp_path)])
        assert made == [(0.01, 1), (0.02, 1), (0.05, 1), (0.02, 2)]


@pytest.mark.parametrize("module", [game, bit_vectors])
def test_tables_of_the_records_are_those_of_the_page(module, tmp_path, capsys):
    name = module.__name__.split(".")[-1]
    plan, folder = ROOT / "experiments" / "latent" / f"{name}.yaml", run.unpack("latent", tmp_path)
    runs.main("", module.train, module.FIGURE, [str(plan), "--folder", str(folder)])
    page = (ROOT / "docs" / "latent.md").read_text(encoding="utf-8")
    assert tables.shown(capsys.readouterr().out, None) in page
