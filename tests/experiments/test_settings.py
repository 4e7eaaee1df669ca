"""Settings compared without fairseq: the same result as with it, or none."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from user_dir.config import check_settings, hydra_override, significant_settings
from user_dir.experiments.plan import read_plan
from user_dir.experiments.settings import DEFAULTS, plain_settings, surely_equal

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.yaml"))
CONFIG = ROOT / "configs" / "multi30k-de-en" / "alpha_entmax.yaml"
BASE = "{defaults: [_self_, base], common: {seed: 2}}"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("most", [2, pytest.param(None, marks=pytest.mark.nightly)])
def test_our_experiments_are_valid_and_composed_as_hydra_does(path, most):
    different = dict.fromkeys((run.config, run.overrides) for run in read_plan(path, ROOT))
    for config, overrides in [*different][:most]:
        settings = check_settings(config, [*map(hydra_override, overrides)])
        assert plain_settings(config, overrides) == settings
        assert Path(settings["task"]["data"]).name == "bin"


@pytest.mark.parametrize(
    "override",
    [
        "optimization.lr=[0.1,1e-4]",
        "model.alpha_log='a, b'",
        "common.log_file='x=y'",
        "task.data=${model._name}/bin",
    ],
)
def test_values_are_those_that_hydra_reads(override):
    found = plain_settings(CONFIG, (override,))
    assert found in (None, check_settings(CONFIG, [hydra_override(override)]))
    assert (found is None) == ("${" in override)


@pytest.mark.parametrize(
    "mine, base, override",
    [
        ("{defaults: [base, _self_], common: {seed: 2}}", "task: {data: a}", "common.seed=1"),
        (BASE, "common: {seed: 1}", "common.seed=1"),
        (BASE, "common", "common.seed=1"),
        (BASE, "task: [", "common.seed=1"),
        (BASE, "{defaults: [other], task: {data: a}}", "common.seed=1"),
        (BASE, "# @package task\ndata: a", "common.seed=1"),
        (BASE, "task: {data: '${oc.env:HOME}'}", "common.seed=1"),
        (BASE, "hydra: {searchpath: [other]}", "common.seed=1"),
        (BASE, "task: {data: a}", "common={}"),
        (BASE, "task: {data: a}", "~common.seed"),
        (BASE, "task: {data: a}", "common.seed=1,2"),
        (BASE, "task: {data: a}", "common.seed.a=1"),
    ],
)
def test_what_is_not_plain_is_left_to_hydra(tmp_path, mine, base, override):
    config = tmp_path / "mine.yaml"
    config.write_text(mine)
    (tmp_path / "base.yaml").write_text(base)
    assert plain_settings(config, (override,)) is None


def test_a_plain_config(tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text(BASE)
    (tmp_path / "base.yaml").write_text("task: {data: '${common.seed}'}")
    assert plain_settings(config, ("common.seed=1",)) == {"common": {"seed": 1}, "task": {"data": 1}}
    assert plain_settings(tmp_path / "none.yaml", ()) is None


def test_the_defaults_are_fairseqs():
    """So that settings that are surely equal are equal for fairseq."""
    spelled_out = copy.deepcopy(DEFAULTS)
    spelled_out["task"]["_name"] = "translation"
    assert significant_settings(spelled_out) == {"checkpoint": {}, "task": {"_name": "translation"}}
    assert surely_equal(
        {"config": spelled_out}, {"config": {"checkpoint": {}, "task": {"_name": "translation"}}}
    )


@pytest.mark.parametrize(
    "section, key", [(section, key) for section in DEFAULTS for key in DEFAULTS[section]]
)
def test_other_values_are_not_equal(section, key):
    one = {"config": json.loads(json.dumps({"task": {"_name": "translation"}, "checkpoint": {}}))}
    other = copy.deepcopy(one)
    other["config"][section][key] = "other"
    assert not surely_equal(one, other) and surely_equal(other, copy.deepcopy(other))
    assert not surely_equal(one, {**one, "data": "other"})
    assert not surely_equal(
        {"config": {"task": {"eval_bleu": False}}}, {"config": {"task": {}}}
    )  # of no task
