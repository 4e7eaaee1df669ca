"""The loss of supervised alignments: fairseq's at α = 1, finite and of use where a link has no weight."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment as Criterion,
)
from helpers import batch, build, dictionary

from user_dir.attention import AttentionInputs
from user_dir.entmax import entmax, entmax_loss
from user_dir.guards.alignment import link_losses

LINKS = torch.tensor([[0, 0], [3, 1], [1, 1], [2, 5]])  # source position, target position of the flat batch
WEIGHTS = torch.tensor([1.0, 0.5, 0.5, 1.0])


def attended(alpha, scale: float = 1.0):
    """Queries, keys and weights of two sentences and three heads; the last source position is padding."""
    generator = torch.Generator().manual_seed(3)
    query, key = (torch.randn(2, 3, n, 4, generator=generator, dtype=torch.float64) * scale for n in (3, 5))
    padding = torch.tensor([[False] * 4 + [True], [False] * 5])
    query.requires_grad_()
    scores = (query / 2) @ key.transpose(-2, -1)
    scores = scores.masked_fill(padding[:, None, None], -float("inf"))
    inputs = AttentionInputs(query, key, key, alpha, padding, need_weights=True)
    return inputs, entmax(scores, alpha), scores


def test_each_head_has_the_entmax_loss_of_its_scores():
    alpha = torch.tensor([1.0, 1.4, 2.0], dtype=torch.float64).view(3, 1, 1)
    inputs, weights, scores = attended(alpha, scale=4.0)
    source, target = LINKS.T
    losses = link_losses(inputs, weights, target, source)
    rows = scores.transpose(0, 1).flatten(1, 2)[:, target]
    expected = torch.stack([entmax_loss(z, source, a) for z, a in zip(rows, (1.0, 1.4, 2.0))])
    assert torch.allclose(losses.double(), expected, atol=1e-4)
    assert (weights.transpose(0, 1).flatten(1, 2)[:, target, source] == 0).any(), "no link without weight"
    gradients = [
        torch.autograd.grad(each.sum(), inputs.query, retain_graph=True)[0] for each in (losses, expected)
    ]
    assert torch.allclose(*gradients, atol=1e-4)


def trained(flags: str, **options):
    """The alignment loss of a batch, and whether all gradients are finite; by fairseq alone if ``inner``."""
    torch.manual_seed(1)
    task = SimpleNamespace(target_dictionary=dictionary())
    criterion, model = Criterion(task, False, 0.1, 0.05), build(flags).train()
    model.trains_alignment = True
    model.after_update(0)
    given = batch()
    sample = {"target": given.pop("target"), "net_input": given, "ntokens": 14}
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
    assert all(trained("--fixed-alpha 2")) and all(trained("--attention-normalizer entmax15"))
    with pytest.raises(SystemExit, match="alignments cannot be trained with --attention-normalizer rela"):
        trained("--attention-normalizer rela")
