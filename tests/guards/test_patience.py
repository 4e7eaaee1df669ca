"""What a checkpoint says of early stopping is taken over only where it is sound and of the same metric."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.trainer import Trainer
from fairseq_cli import train

from user_dir.guards import installing, patience

STATE = {"best": 3.5, "validations": 2, "metric": "loss"}


@pytest.fixture
def resumed(monkeypatch):
    """``resumed(state, updates, **settings)``: what early stopping knows after resuming."""

    def resume(state, updates=10, **settings):
        for name in ("best", "num_runs"):
            if hasattr(train.should_stop_early, name):
                delattr(train.should_stop_early, name)
        monkeypatch.setattr(
            checkpoint_utils, "load_checkpoint", lambda cfg, trainer: ({patience.KEY: state}, None)
        )
        monkeypatch.setattr(Trainer, "save_checkpoint", Trainer.save_checkpoint)
        installing.install(patience)
        trainer = SimpleNamespace(get_num_updates=lambda: updates)
        checkpoint_utils.load_checkpoint(dataclasses.replace(CheckpointConfig(), **settings), trainer)
        return vars(train.should_stop_early)

    yield resume
    vars(train.should_stop_early).clear()


def test_a_sound_state_is_restored(resumed):
    assert resumed(STATE, patience=3) == {"best": 3.5, "num_runs": 2}


WRONG = [{"best": float("nan")}, {"best": "3.5"}, {"best": torch.ones(3)}]
WRONG += [{"validations": -1}, {"validations": True}, {"metric": "bleu"}]


@pytest.mark.parametrize("state", [None, [], {}, *({**STATE, **each} for each in WRONG)], ids=str)
def test_any_other_begins_anew(resumed, state):
    assert resumed(state, patience=2) == {}


def test_it_begins_anew_where_fairseq_forgets_its_best_and_for_a_model_to_fine_tune(resumed):
    for settings in ({"reset_optimizer": True}, {"reset_meters": True}):
        assert resumed(STATE, patience=2, **settings) == {}
    assert resumed(STATE, updates=0, patience=2, finetune_from_model="model.pt") == {}


@pytest.mark.parametrize(("limit", "ends"), [(3, False), (2, True), (1, True), (0, False), (-1, False)])
def test_a_run_that_has_stopped_stays_stopped(resumed, limit, ends):
    if not ends:
        assert resumed(STATE, patience=limit)["num_runs"] == 2
        return
    with pytest.raises(SystemExit) as ended:
        resumed(STATE, patience=limit)
    assert ended.value.code == 0
