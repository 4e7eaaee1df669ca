"""The loss with label smoothing in parts, against fairseq's own, and where it is left to fairseq."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    label_smoothed_nll_loss,
)
from helpers import MODEL_TOLERANCE, batch, build, dictionary

from user_dir.benchmarks.measure import peak_memory
from user_dir.guards import smoothed_loss
from user_dir.guards.smoothed_loss import SmoothedLoss

FAIRSEQS_OWN = LabelSmoothedCrossEntropyCriterion.compute_loss.__wrapped__
PAD = dictionary().pad()


@pytest.fixture
def parts(monkeypatch):
    """Parts of three rows, the last of which is smaller, for the vocabularies of this module."""
    monkeypatch.setattr(smoothed_loss, "PART", 3 * 20 + 2)


def criterion(smoothing=0.1, **settings) -> LabelSmoothedCrossEntropyCriterion:
    return LabelSmoothedCrossEntropyCriterion(
        SimpleNamespace(target_dictionary=dictionary()), False, smoothing, **settings
    )


def rows(dtype: torch.dtype, padded: bool = True):
    generator = torch.Generator().manual_seed(1)
    scores = (4 * torch.randn(10, 20, generator=generator)).to(dtype).requires_grad_()
    target = torch.randint(4, 20, (10, 1), generator=generator)
    if padded:
        target[[0, 4, 9]] = PAD
    return scores, target


def of_model(compute, smoothing, model, sample):
    """Loss, negative log-likelihood and the gradients of a model."""
    inputs = {name: sample[name] for name in sample if name != "target"}
    model.zero_grad()
    loss, nll = compute(criterion(smoothing), model, model(**inputs), sample)
    loss.backward()
    return [loss, nll, *(each.grad for each in model.parameters())]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_model_has_the_same_loss_and_gradients(parts, smoothing):
    model = build().float()
    of_fairseq, found = (
        of_model(compute, smoothing, model, batch())
        for compute in (FAIRSEQS_OWN, LabelSmoothedCrossEntropyCriterion.compute_loss)
    )
    assert found[0].grad_fn.name() == "SmoothedLossBackward"
    for one, other in zip(found, of_fairseq, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_scores_of_every_precision_have_fairseqs_gradient_under_a_scale(parts, dtype, smoothing):
    scores, target = rows(dtype)
    log_p = torch.log_softmax(scores, -1, dtype=torch.float32)
    of_fairseq = label_smoothed_nll_loss(log_p, target, smoothing, ignore_index=PAD)
    found = SmoothedLoss.apply(scores, target, smoothing, PAD)
    for one, other in zip(found, of_fairseq, strict=True):
        torch.testing.assert_close(one, other)
    one, other = (torch.autograd.grad(512 * each[0], scores)[0] for each in (found, of_fairseq))
    torch.testing.assert_close(one, other)
    assert not one[[0, 4, 9]].any() and one[1:4].all()


@pytest.mark.parametrize("padded", [False, True])
def test_the_gradient_is_that_of_the_loss(parts, padded):
    scores, target = rows(torch.float64, padded)
    assert torch.autograd.gradcheck(lambda z: SmoothedLoss.apply(z, target, 0.1, PAD)[0], scores)
    loss, nll = SmoothedLoss.apply(scores, target, 0.1, PAD)
    expected = label_smoothed_nll_loss(scores.log_softmax(-1), target, 0.1, ignore_index=PAD)
    torch.testing.assert_close((loss, nll), expected, **MODEL_TOLERANCE)


def test_only_padding_and_what_is_not_finite(parts):
    scores, target = rows(torch.float32)
    loss, nll = SmoothedLoss.apply(scores, torch.full_like(target, PAD), 0.1, PAD)
    assert loss == nll == 0 and not torch.autograd.grad(loss, scores)[0].any()
    with torch.no_grad():
        scores[5, 7] = torch.nan
    assert SmoothedLoss.apply(scores, target, 0.1, PAD)[0].isnan()


@pytest.mark.parametrize(
    ("flags", "arch", "settings"),
    [
        ("", "transformer", {}),
        ("--latent-alignment --latent-alignment-soft", "adaptively_sparse_transformer", {}),
        ("", "adaptively_sparse_transformer", {"ignore_prefix_size": 1}),
    ],
)
def test_others_are_left_to_fairseq(parts, flags, arch, settings):
    model, sample = build(flags, arch).float(), batch()
    inputs = {name: sample[name] for name in sample if name != "target"}
    loss, _ = criterion(**settings).compute_loss(model, model(**inputs), sample)
    assert loss.grad_fn.name() != "SmoothedLossBackward"


def test_a_loss_that_is_not_summed_is_left_to_fairseq(parts):
    model, sample = build().float(), batch()
    output = model(**{name: sample[name] for name in sample if name != "target"})
    losses, _ = criterion().compute_loss(model, output, sample, reduce=False)
    assert losses.numel() == sample["target"].numel()
    torch.testing.assert_close(losses.sum(), criterion().compute_loss(model, output, sample)[0])


def test_it_takes_half_of_the_memory():
    scores = torch.randn(1024, 4000).bfloat16().requires_grad_()
    target = torch.randint(4, 4000, (1024, 1))

    def by_fairseq():
        log_p = torch.log_softmax(scores, -1, dtype=torch.float32)
        label_smoothed_nll_loss(log_p, target, 0.1, ignore_index=PAD)[0].backward()

    def in_parts():
        SmoothedLoss.apply(scores, target, 0.1, PAD)[0].backward()

    of_fairseq, found = (peak_memory(each, torch.device("cpu")) for each in (by_fairseq, in_parts))
    gradient = 2 * scores.numel()
    assert gradient <= found < gradient + 4 * (4 * smoothed_loss.PART) < of_fairseq / 2
