"""Groups of parameters for fairseq's optimizer ``composite``."""

import pytest
import torch
from fairseq.optim.composite import CompositeOptimizerConfig, FairseqCompositeOptimizer
from omegaconf import OmegaConf

from user_dir.errors import UserError


def optimizer(groups, of_params):
    """An optimizer with a rate for each of ``groups``, and a parameter with a gradient of 1 of each group."""
    params = []
    for group in of_params:
        params.append(torch.nn.Parameter(torch.ones(2)))
        params[-1].grad = torch.ones(2)
        if group:
            params[-1].param_group = group
    settings = {
        group: {
            "lr_float": rate,
            "optimizer": {"_name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "lr": [rate]},
            "lr_scheduler": {"_name": "fixed", "lr": [rate]},
        }
        for group, rate in groups.items()
    }
    config = OmegaConf.merge(OmegaConf.structured(CompositeOptimizerConfig), {"groups": settings})
    return params, FairseqCompositeOptimizer(config, params)


def test_a_group_without_settings_is_trained_as_default():
    params, built = optimizer({"bert": 0.1, "default": 0.5}, ["bert", "alpha", None])
    built.step()
    assert [each[0].item() for each in params] == pytest.approx([0.9, 0.5, 0.5])


def test_groups_with_settings_keep_them():
    params, built = optimizer({"bert": 0.1, "alpha": 0.2, "default": 0.5}, ["bert", "alpha", None])
    built.step()
    assert [each[0].item() for each in params] == pytest.approx([0.9, 0.8, 0.5])


def test_a_group_of_which_there_is_no_parameter_is_named(caplog):
    optimizer({"brt": 0.1, "default": 0.5}, ["bert", None])
    assert "brt" in caplog.text


@pytest.mark.parametrize(
    ("groups", "of_params"), [({"bert": 0.1}, ["bert", "alpha"]), ({"default": 0.1}, [None])]
)
def test_what_cannot_be_built_is_an_error_of_the_user(groups, of_params):
    with pytest.raises(UserError):
        optimizer(groups, of_params)


def test_an_optimizer_does_not_step_the_parameters_of_another():
    (before, _), _ = optimizer({"bert": 0.1, "default": 0.5}, ["bert", None])
    params, built = optimizer({"default": 0.5}, [None, None])
    built.step()
    assert (before[0].item(), params[0][0].item()) == (1.0, 0.5)
