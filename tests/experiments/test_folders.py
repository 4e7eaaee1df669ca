"""A run is refused where its folder or its record has another search or lacks what the plan asks for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from user_dir.errors import UserError
from user_dir.experiments.folders import Job, _check_average, _of_plan, claim, is_recorded, state
from user_dir.experiments.plan import Run, Search
from user_dir.experiments.running import run_all

SEARCH = Search(beams=(1, 2), exact=False, sentences=3)
RUN = Run("mine", "a", 1, Path("c.yaml"), (), 5, search=SEARCH)


@pytest.fixture
def job(tmp_path):
    """A function that gives the job of a run with some settings changed."""

    def of(**changes) -> Job:
        run = replace(RUN, **changes)
        settings = json.loads(json.dumps({"config": {}, "data": {}, **_of_plan(run)}, default=list))
        return Job(run, tmp_path / "run", tmp_path / "record", SimpleNamespace(test_sets=["exam"]), settings)

    return of


def record(folder: Path, settings: dict, search: dict | None) -> None:
    """Write a record; ``search`` is what its result has of the test set exam."""
    scores = {"beam": 5, "bleu": 1.0, "chrf": 1.0, "bleu_signature": "", "chrf_signature": "", "sentences": 9}
    result = {
        "run": "a",
        "corpus": "mine",
        "direction": "de-en",
        "averaged_epochs": 5,
        "parameters": 1,
        "training": dict.fromkeys(("processor_seconds", "tokens_per_second", "tokens_per_processor_second")),
        "validation": {"loss": 1.0, "ppl": 1.0},
        "evaluation": {"valid": scores, "exam": scores},
        "heads": {},
        "search": {} if search is None else {"exam": search},
    }
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "result.json").write_text(json.dumps(result))


OTHERS = [
    (SEARCH, Search(beams=(1, 2), exact=False, sentences=5), "search.sentences was 3 and is 5"),
    (SEARCH, Search(beams=(1, 4), exact=False, sentences=3), r"search.beams was \[1, 2\] and is \[1, 4\]"),
    (SEARCH, Search(beams=(1, 2), sentences=3), "search.exact was False and is True"),
    (None, SEARCH, r"search.beams was None and is \[1, 2\]"),
]


@pytest.mark.parametrize(("before", "now", "said"), OTHERS)
def test_another_search_is_refused(job, before, now, said):
    first, other = job(search=before), job(search=now)
    first.folder.mkdir()
    claim(first)
    claim(first)
    with pytest.raises(UserError, match=said):
        claim(other)
    record(first.record, first.settings, None)
    assert is_recorded(first) and state(first) == "done" and state(other).startswith("changed: search")
    failed, _ = run_all([other], print)
    assert list(failed) == ["a-seed1"]


def test_what_is_measured_beyond_the_plan_is_no_difference(job):
    record(job().record, job().settings, None)
    assert state(job(search=None, importance=False)) == "done"


def test_importance_that_was_left_out_is_missed(job):
    record(job().record, job(importance=False).settings, None)
    assert state(job(importance=False)) == "done"
    assert state(job()) == "changed: importance was False and is True"


def found(beams, sentences: int) -> dict:
    results = [{"beam": beam, "bleu": 1.0, "length_ratio": 1.0} for beam in beams]
    return {"beams": results, "sentences": sentences, "calibration": {"expected_calibration_error": 0.1}}


@pytest.mark.parametrize(
    ("search", "asked", "same"),
    [
        (found([1, 2], 3), SEARCH, True),
        (found([1, 2], 9), Search(beams=(1, 2)), True),
        (found([1, 2], 9), Search(beams=(1, 2), sentences=20), True),  # it has only 9
        (found([1, 2], 4), Search(beams=(1, 2), min_words=7), True),
        (found([1, 2], 5), SEARCH, False),
        (found([1, 2], 3), Search(beams=(1, 2)), False),
        (found([1, 5], 3), SEARCH, False),
        (None, SEARCH, False),
        (None, None, True),
        (found([1, 2], 3), None, True),
    ],
)
def test_older_records_tell_by_their_results_how_they_were_searched(job, search, asked, same):
    older = {"config": {}, "data": {}, "average": 5}
    record(job().record, older, search)
    assert (state(job(search=asked)) == "done") == same
    assert same or state(job(search=asked)).startswith("changed: search")


def test_the_average_may_change_until_it_is_made(job):
    first, other = job(), job(average=2)
    first.folder.mkdir()
    claim(first)
    claim(other)
    assert json.loads((other.folder / "settings.json").read_text())["average"] == 2
    other.average.touch()
    with pytest.raises(UserError, match="average was 2 and is 5"):
        claim(first)


@pytest.mark.parametrize(
    ("average", "config", "said"),
    [
        ("ema", {}, "ema.store_ema"),
        (3, {"checkpoint": {"no_epoch_checkpoints": True}}, "no_epoch_checkpoints"),
        (3, {"checkpoint": {"keep_last_epochs": 2}}, "keep_last_epochs is 2"),
        (3, {"optimization": {"max_epoch": 5}, "checkpoint": {"save_interval": 2}}, "max_epoch allows 2"),
    ],
)
def test_an_average_that_training_cannot_leave_is_refused_before_it(average, config, said):
    with pytest.raises(UserError, match=said):
        _check_average(replace(RUN, average=average), config)


@pytest.mark.parametrize(
    ("average", "config"),
    [
        ("ema", {"ema": {"store_ema": True}, "checkpoint": {"no_epoch_checkpoints": True}}),
        (3, {}),
        (3, {"checkpoint": {"keep_last_epochs": None}, "optimization": {"max_epoch": None}}),
        (3, {"checkpoint": {"keep_last_epochs": 3, "save_interval": 2}, "optimization": {"max_epoch": 6}}),
    ],
)
def test_an_average_that_training_leaves_is_accepted(average, config):
    _check_average(replace(RUN, average=average), config)
