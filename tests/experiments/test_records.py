"""The records of the repository match its present experiments, and contain no paths of a machine."""

from __future__ import annotations

import functools
import json
import re
import runpy
import shutil
from pathlib import Path

import pytest

from user_dir.config import significant_settings
from user_dir.corpora.readers import read_lines
from user_dir.experiments.plan import read_plan
from user_dir.experiments.results import experiment_tables, read_result
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


def test_every_record_can_be_tabulated():
    """Also old ones, without what was recorded later."""
    tables = experiment_tables([read_result(folder / "result.json") for folder in FOLDERS])
    assert all(f"| {folder.name.rpartition('-seed')[0]} " in tables for folder in FOLDERS)


@pytest.fixture
def listed(tmp_path, monkeypatch, capsys):
    """A copy of a record, and a function that gives what ``experiment.py --list`` prints of it."""
    for seed in (2, 1):
        copied = RECORDS / "comparison" / f"de-en-alpha_entmax-seed{seed}"
        record = shutil.copytree(copied, tmp_path / "records" / copied.parent.name / copied.name)
    monkeypatch.syspath_prepend(ROOT / "scripts")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    main = runpy.run_path(str(ROOT / "scripts" / "experiment.py"))["main"]

    def call() -> str:
        plan = ROOT / "experiments" / "comparison.yaml"
        places = ["--folder", str(tmp_path / "runs"), "--records", str(tmp_path / "records")]
        main([str(plan), "--list", "--only", "de-en-alpha_entmax-seed[12]", *places])
        return capsys.readouterr().out

    return record, call


@pytest.mark.parametrize("content", ["{}", "", "[]", '{"run": 1, "run": 2}', "\x00"])
def test_a_corrupt_result_is_named_beside_the_others(listed, capsys, content):
    record, call = listed
    assert "| de-en-alpha_entmax | 2 " in call()
    (record / "result.json").write_text(content)
    with pytest.raises(SystemExit) as caught:
        call()
    assert "seed1: error: " in caught.value.code and str(record / "result.json") in caught.value.code
    said = capsys.readouterr().out
    assert "| de-en-alpha_entmax | 1 " in said and "seed1" in said and "seed2" in said


def test_settings_of_others_do_not_control_the_terminal(listed):
    record, call = listed
    asked = json.loads((record / "asked.json").read_text())
    (record / "asked.json").write_text(json.dumps({**asked, "\x1b[2J\x07": 1}))
    shown = call()
    assert "changed: \\x1b[2J\\x07 was 1" in shown and "\x1b" not in shown and "\x07" not in shown
