"""Overrides reach the model, also those that its checkpoint has no value for."""

from argparse import Namespace

import pytest
from fairseq import checkpoint_utils
from omegaconf import MISSING, OmegaConf

import user_dir.models  # noqa: F401  installs the guards


def overridden(name: str, **overrides):
    cfg = OmegaConf.create(
        {"model": {"_name": name, "dropout": 0.1}, "task": {"data": "here"}, "dataset": {"path": MISSING}}
    )
    OmegaConf.set_struct(cfg, True)
    checkpoint_utils.overwrite_args_by_name(cfg, overrides)
    return cfg


def test_settings_that_the_checkpoint_lacks_are_added_to_our_models():
    cfg = overridden("adaptively_sparse_transformer_tiny", int8=True, dropout=0.3, data="there")
    assert cfg.model == {"_name": "adaptively_sparse_transformer_tiny", "dropout": 0.3, "int8": True}
    assert cfg.task == {"data": "there"}


def test_other_models_keep_fairseqs_rule():
    assert overridden("transformer", int8=True, dropout=0.3).model == {"_name": "transformer", "dropout": 0.3}


@pytest.mark.parametrize("value", (True, None))
def test_checkpoints_trained_by_flags(value):
    cfg = OmegaConf.create({"task": {}}, flags={"allow_objects": True})
    cfg.model = Namespace(_name="adaptively_sparse_transformer", dropout=0.1)
    checkpoint_utils.overwrite_args_by_name(cfg, {"int8": value})
    assert cfg.model.int8 is value
