"""The records of the repository match its present experiments, and contain no paths of a machine."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

from user_dir.config import significant_settings
from user_dir.corpora.readers import read_lines
from user_dir.experiments.plan import read_plan
from user_dir.experiments.settings import plain_settings
from user_dir.io import read_text

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "experiments" / "records"
FOLDERS = [path.parent for path in sorted(RECORDS.glob("*/*/asked.json"))]


@functools.cache
def all_runs() -> list:
    return [run for path in sorted((ROOT / "experiments").glob("*.yaml")) for run in read_plan(path, ROOT)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_record_matches_the_present_run_of_its_experiment(folder):
    of_it = [run for run in all_runs() if (run.experiment, run.label) == (folder.parent.name, folder.name)]
    assert of_it, "no experiment asks for it"
    asked = json.loads((folder / "asked.json").read_text())
    for run in of_it:
        now = plain_settings(run.config, run.overrides)  # what hydra composes, as test_settings.py makes sure
        now["common"]["seed"] = run.seed
        assert significant_settings(asked["config"]) == significant_settings(now)
        assert asked["average"] == run.average
    evaluated = json.loads((folder / "result.json").read_text())["evaluation"]
    for split, scores in evaluated.items():
        target = scores["direction"].partition("-")[2]
        assert len(list(read_lines(folder / "evaluation" / f"{split}.{target}.bz2"))) == scores["sentences"]


def test_records_contain_no_paths_of_a_machine():
    files = [*RECORDS.rglob("*.json"), *RECORDS.rglob("*.json.bz2")]
    assert len(files) > 6 * len(FOLDERS) > 0
    for path in files:
        assert not re.search(r'["= ]/\w+/', read_text(path, "the record")), path


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_record_is_small(folder):
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 2e5
