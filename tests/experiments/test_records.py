"""The records of the repository match its present experiments, and contain no paths of a machine."""

from __future__ import annotations

import functools
import importlib
import json
import re
import threading
from pathlib import Path

import pytest

from user_dir.config import significant_settings
from user_dir.corpora.readers import read_lines
from user_dir.experiments import records
from user_dir.experiments.folders import _of_plan, _settings_of
from user_dir.experiments.plan import read_plan
from user_dir.experiments.result_tables import experiment_tables, read_result
from user_dir.experiments.settings import plain_settings
from user_dir.io import read_text
from user_dir.packed_folders import EXTENSION, expanded, read_archive, there

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "experiments" / "records"
FOLDERS = [
    asked.parent
    for archive in sorted(RECORDS.glob(f"*{EXTENSION}"))
    for asked in expanded(RECORDS / archive.name.removesuffix(EXTENSION) / "*" / "asked.json")
    if there(asked)
]


@functools.cache
def all_runs() -> list:
    return [run for path in sorted((ROOT / "experiments").glob("*.yaml")) for run in read_plan(path, ROOT)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_record_matches_the_present_run_of_its_experiment(folder):
    of_it = [run for run in all_runs() if (run.experiment, run.label) == (folder.parent.name, folder.name)]
    assert of_it, "no experiment asks for it"
    asked = json.loads(read_text(folder / "asked.json", "it"))
    for run in of_it:
        now = plain_settings(run.config, run.overrides)  # what hydra composes, as test_settings.py makes sure
        now["common"]["seed"] = run.seed
        assert significant_settings(asked["config"]) == significant_settings(now)
        assert _settings_of(folder, run).items() >= json.loads(json.dumps(_of_plan(run))).items()
    evaluated = json.loads(read_text(folder / "result.json", "it"))["evaluation"]
    for split, scores in evaluated.items():
        target = scores["direction"].partition("-")[2]
        translations = read_lines(folder / "evaluation" / f"{split}.{target}.bz2")
        assert len(list(translations)) == scores["sentences"]


def test_records_contain_no_paths_of_a_machine_and_are_small():
    archives = sorted(RECORDS.iterdir())
    assert len(archives) < 50 and FOLDERS
    for archive in archives:
        files = read_archive(archive)
        runs = {name.split("/")[0] for name in files}
        assert archive.stat().st_size < 5e4 * len(runs) + 1e5
        for name, content in files.items():
            if name.endswith(".json"):
                assert not re.search(r'["= ]/\w+/', content.decode()), (archive, name)


def test_the_same_records_are_the_same_bytes(tmp_path):
    found = {name: content.decode() for name, content in read_archive(RECORDS / "annealing.tar.xz").items()}
    names = sorted(found)
    for half in (names[::2], names[1::2]):
        records.add(tmp_path / "annealing", {name: found[name] for name in half})
    records.add(tmp_path / "again", found)
    first = (tmp_path / "annealing.tar.xz").read_bytes()
    assert first == (tmp_path / "again.tar.xz").read_bytes() == (RECORDS / "annealing.tar.xz").read_bytes()


def test_processes_add_their_records_one_after_the_other(tmp_path):
    threads = [
        threading.Thread(target=records.add, args=(tmp_path / "all", {f"run{i}/result.json": str(i)}))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_archive(tmp_path / "all.tar.xz")) == 8 and len(list(tmp_path.iterdir())) == 1


def test_every_record_can_be_tabulated():
    """Also old ones, without what was recorded later."""
    tables = experiment_tables([read_result(folder / "result.json") for folder in FOLDERS])
    assert all(f"| {folder.name.rpartition('-seed')[0]} " in tables for folder in FOLDERS)


@pytest.fixture
def listed(tmp_path, monkeypatch, capsys):
    """A copy of a record, and a function that gives what ``experiment.py --list`` prints of it."""
    for seed in (2, 1):
        record = tmp_path / "records" / "comparison" / f"de-en-alpha_entmax-seed{seed}"
        for name, content in read_archive(RECORDS / "comparison.tar.xz").items():
            if name.startswith(f"{record.name}/"):  # as earlier versions recorded it
                (record.parent / name).parent.mkdir(parents=True, exist_ok=True)
                (record.parent / name).write_bytes(content)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    main = importlib.import_module("user_dir.commands.experiment").main

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
    (record / "settings.json").write_text(json.dumps(asked))  # as it is called since
    (record / "asked.json").unlink()
    assert "changed" not in call()
    (record / "settings.json").write_text(json.dumps({**asked, "\x1b[2J\x07": 1}))
    shown = call()
    assert "changed: \\x1b[2J\\x07 was 1" in shown and "\x1b" not in shown and "\x07" not in shown
