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


@pytest.mark.parametrize("checkpoint", [{"checkpoint": {"save_dir": "checkpoints"}}, {}])  # the default
def test_a_training_is_made_once(tmp_path, monkeypatch, checkpoint):
    config = {**checkpoint, "task": {"data": "a"}, "optimization": {"max_update": 3}}
    made = []
    monkeypatch.setattr("user_dir.config.check_config", lambda path, overrides, root: config)
    monkeypatch.setattr("user_dir.config.training_command", lambda path, overrides, root: (["train"], {}))
    monkeypatch.setattr(training_stages, "run_child", lambda name, command, log, *rest: made.append(command))
    given, said = read_steps(plan(tmp_path, "before: [{train: c.yaml}]")), []
    for _ in range(2):
        make_steps(given, tmp_path, tmp_path / "before", said.append)
    assert made == [["train"]] and said == ["before the runs: train c.yaml"] * 2
    assert json.loads((tmp_path / "checkpoints" / steps.DONE).read_text()) == config
    config["optimization"]["max_update"] = 4
    refused = pytest.raises(UserError, match=r"checkpoints was trained with other .*; remove it")
    with refused:
        make_steps(given, tmp_path, tmp_path / "before", said.append)
    config["optimization"]["max_update"] = 3
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "stamp.json").write_text(json.dumps({"inputs": {}, "outputs": {}, "report": {}}))
    with refused:  # the data were prepared since
        make_steps(given, tmp_path, tmp_path / "before", said.append)


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A training that ends with an error whenever it is begun, once it has been let write a checkpoint."""
    config = {"checkpoint": {"save_dir": "run"}, "task": {"data": "a/bin"}, "optimization": {"lr": [0.1]}}
    given, begun = read_steps(plan(tmp_path, "before: [{train: c.yaml}]")), []

    def stop(*_):
        begun.append(config["optimization"]["lr"])
        raise UserError("training ended with status 1")

    monkeypatch.setattr("user_dir.config.check_config", lambda *_: config)
    monkeypatch.setattr("user_dir.config.training_command", lambda *_: (["train"], {}))
    monkeypatch.setattr(training_stages, "run_child", stop)

    def attempt(message: str = "status 1") -> list:
        with pytest.raises(UserError, match=message):
            make_steps(given, tmp_path, tmp_path / "b", print)
        return begun

    return config, attempt


def test_a_failed_training_is_not_done(tmp_path, interrupted):
    config, attempt = interrupted
    attempt()
    assert not (tmp_path / "run" / steps.DONE).exists()
    config["optimization"]["lr"] = [0.2]  # without a checkpoint, nothing is resumed
    assert attempt() == [[0.1], [0.2]]


@pytest.mark.parametrize("changed", ["settings", "data"])
def test_an_interrupted_training_goes_on_with_its_settings_and_data_alone(tmp_path, interrupted, changed):
    config, attempt = interrupted
    stamp = tmp_path / "a" / "bin" / "stamp.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text(json.dumps({"inputs": {"text": 1}, "outputs": {}, "report": {}}))
    attempt()
    (tmp_path / "run" / "checkpoint_last.pt").touch()
    assert len(attempt()) == 2
    if changed == "data":
        stamp.write_text(json.dumps({"inputs": {"text": 2}, "outputs": {}, "report": {}}))
    else:
        config["optimization"]["lr"] = [0.2]
    assert len(attempt(r"run was trained with other .*; remove it")) == 2


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
