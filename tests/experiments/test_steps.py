"""What an experiment makes before its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from helpers import script_module

from user_dir.errors import UserError
from user_dir.experiments import steps, training_stages
from user_dir.experiments.plan import read_steps
from user_dir.experiments.steps import make_steps

ROOT = Path(__file__).resolve().parents[2]


def plan(tmp_path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text if "runs" in text else f"{text}\nruns: [{{name: a, config: c.yaml}}]")
    return path


def test_the_steps_of_the_repository_name_what_exists():
    for path in sorted((ROOT / "experiments").glob("*.yaml")):
        for step in read_steps(path):
            if step.kind == "train":
                assert (ROOT / step.object).is_file()
            else:
                name = step.object if step.kind == "prepare" else step.corpus
                assert (ROOT / "data" / name / "corpus.yaml").is_file()


def test_a_training_is_made_once(tmp_path, monkeypatch):
    config = {"checkpoint": {"save_dir": "run"}, "optimization": {"max_update": 3}}
    made = []
    monkeypatch.setattr("user_dir.config.check_config", lambda path, overrides, root: config)
    monkeypatch.setattr("user_dir.config.training_command", lambda path, overrides, root: (["train"], {}))
    monkeypatch.setattr(training_stages, "run_child", lambda name, command, log, *rest: made.append(command))
    given, said = read_steps(plan(tmp_path, "before: [{train: c.yaml}]")), []
    for _ in range(2):
        make_steps(given, tmp_path, tmp_path / "before", said.append)
    assert made == [["train"]] and said == ["before the runs: train c.yaml"] * 2
    assert json.loads((tmp_path / "run" / steps.DONE).read_text()) == config
    config["optimization"]["max_update"] = 4
    with pytest.raises(UserError, match="run was trained with other settings; remove it to train again"):
        make_steps(given, tmp_path, tmp_path / "before", said.append)


def test_a_failed_training_is_not_done(tmp_path, monkeypatch):
    def fail(*_):
        raise UserError("training ended with status 1")

    monkeypatch.setattr("user_dir.config.check_config", lambda *_: {"checkpoint": {"save_dir": "run"}})
    monkeypatch.setattr("user_dir.config.training_command", lambda *_: (["train"], {}))
    monkeypatch.setattr(training_stages, "run_child", fail)
    with pytest.raises(UserError, match="status 1"):
        make_steps(read_steps(plan(tmp_path, "before: [{train: c.yaml}]")), tmp_path, tmp_path / "b", print)
    assert not (tmp_path / "run").exists()


def test_nothing_is_made_before_runs_that_are_all_recorded(tmp_path, monkeypatch, capsys):
    """Nor are the data needed: a clone prints the tables of its records."""

    class Made(Exception):
        pass

    def make(*_):
        raise Made

    monkeypatch.setattr(steps, "make_steps", make)
    main = script_module("experiment").main
    run = {"of": "comparison", "name": "de-en-softmax", "config": "configs/multi30k-de-en/softmax.yaml"}
    same = yaml.safe_load((ROOT / "experiments" / "comparison.yaml").read_text())
    same |= {"before": [{"prepare": "toy"}], "runs": [{**run, "seeds": [1]}]}
    main([str(plan(tmp_path, json.dumps(same))), "--folder", str(tmp_path / "runs")])  # JSON is YAML
    assert "| de-en-softmax " in capsys.readouterr().out
    same["runs"][0]["seeds"] = [1, 99]
    with pytest.raises(Made):
        main([str(plan(tmp_path, json.dumps(same))), "--folder", str(tmp_path / "runs")])
