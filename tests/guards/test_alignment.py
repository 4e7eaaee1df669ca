"""The loss of supervised alignments: fairseq's at α = 1, finite and of use where a link has no weight."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment as Criterion,
)
from helpers import batch, build, dictionary

LINKS = torch.tensor([[0, 0], [3, 1], [1, 1], [2, 5]])  # source position, target position of the flat batch
WEIGHTS = torch.tensor([1.0, 0.5, 0.5, 1.0])


def trained(flags: str, **options):
    """The alignment loss of a batch, and whether all gradients are finite."""
    torch.manual_seed(1)
    task = SimpleNamespace(target_dictionary=dictionary())
    criterion, model = Criterion(task, False, 0.1, 0.05), build(flags).train()
    model.trains_alignment = True
    model.after_update(0)
    inputs = batch()
    sample = {"target": inputs.pop("target"), "net_input": inputs, "ntokens": 14}
    sample |= {"alignments": LINKS + torch.tensor([3, 0]), "align_weights": WEIGHTS}
    loss, _, logged = criterion(model, sample)
    loss.backward()
    return logged["alignment_loss"], all(
        p.grad.isfinite().all() for p in model.parameters() if p.grad is not None
    )


def test_at_alpha_1_it_is_fairseqs(monkeypatch):
    ours = trained("--fixed-alpha 1")
    monkeypatch.setattr(Criterion, "compute_alignment_loss", Criterion.compute_alignment_loss.__wrapped__)
    assert ours[0] == pytest.approx(trained("--fixed-alpha 1")[0], rel=1e-4)


def test_links_without_weight_have_a_finite_loss():
    for flags in ("--fixed-alpha 2", "--attention-normalizer entmax15"):
        loss, finite_gradients = trained(flags)
        assert torch.as_tensor(loss).isfinite() and loss > 0 and finite_gradients
    with pytest.raises(SystemExit, match="alignments cannot be trained with --attention-normalizer rela"):
        trained("--attention-normalizer rela")
