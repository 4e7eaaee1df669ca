"""The losses that fairseq's criterion of R-Drop logs, against those of one pass."""

import copy

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import (
    RdropLabelSmoothedCrossEntropyCriterion,
)
from helpers import batch, build, translation_task


def sample():
    given = batch()
    target = given.pop("target")
    return {"net_input": given, "target": target, "ntokens": int(target.ne(1).sum())}


def assert_near(found, expected):
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=0)


def criteria(weight=5.0):
    task = translation_task()
    plain = LabelSmoothedCrossEntropyCriterion(task, False, 0.1)
    return plain, RdropLabelSmoothedCrossEntropyCriterion(task, False, 0.1, rdrop_alpha=weight)


def test_validation_is_that_of_one_pass():
    model, (plain, rdrop) = build("--dropout 0.3").eval(), criteria()
    expected, size, logged = plain(model, sample())
    given = sample()
    rows = len(given["net_input"]["src_tokens"])
    found, its_size, its_logged = rdrop(model, given)
    assert_near(found, expected)
    assert_near(its_logged["nll_loss"], logged["nll_loss"])
    assert its_size == size and rdrop.rdrop_alpha == 5 and len(given["net_input"]["src_tokens"]) == rows


@pytest.mark.parametrize("weight", [5.0, 0.0])
def test_training_has_the_loss_of_both_passes_and_the_perplexity_of_one(weight):
    """Without dropout, when both passes are the same."""
    model, (plain, rdrop) = build("--dropout 0 --attention-dropout 0").train(), criteria(weight)
    expected, _, logged = plain(model, sample())
    found, _, its_logged = rdrop(model, copy.deepcopy(sample()))
    assert_near(found, expected * (2 if weight else 1))
    assert_near(its_logged["nll_loss"], logged["nll_loss"])
    model.zero_grad()
    found.backward()
    assert all(each.grad is not None for each in model.decoder.layers.parameters())
