"""The criterion entmax_loss and the model's --output-alpha, without training."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import MODEL_TOLERANCE, batch, build, dictionary, entmax_oracle, parse, translation_task

from user_dir.entmax import entmax_loss
from user_dir.tasks.entmax_loss import EntmaxLossCriterion


def criterion(label_smoothing=0.0, sentence_avg=False):
    task = SimpleNamespace(target_dictionary=dictionary())
    return EntmaxLossCriterion(task, sentence_avg, label_smoothing)


def sample():
    inputs = batch()
    target = inputs.pop("target")
    tokens = int((target != dictionary().pad()).sum())
    return {"net_input": inputs, "target": target, "ntokens": tokens, "nsentences": len(target)}


@pytest.mark.parametrize("sentence_avg", (False, True))
def test_sums_the_loss_and_logs_the_support(sentence_avg):
    model, examples = build("--output-alpha 1.5"), sample()
    value, size, logged = criterion(0.1, sentence_avg)(model, examples)
    logits = model(**examples["net_input"])[0]
    there = examples["target"] != dictionary().pad()
    expected = entmax_loss(logits[there], examples["target"][there], 1.5, label_smoothing=0.1)
    torch.testing.assert_close(value, expected.sum(), **MODEL_TOLERANCE)
    assert size == (3 if sentence_avg else 14)
    value.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())

    support = (entmax_oracle(logits[there], 1.5) > 0).sum()
    with metrics.aggregate() as kept:
        EntmaxLossCriterion.reduce_metrics([logged, logged])
    shown = kept.get_smoothed_values()
    assert shown["loss"] == pytest.approx(value.item() / size, abs=1e-4)
    assert shown["support"] == pytest.approx(support.item() / 14, abs=0.01)
    assert shown["output_zeros"] == pytest.approx(1 - support.item() / 14 / len(dictionary()), abs=1e-4)
    assert "ppl" not in shown
    unreduced, _, _ = criterion(0.1)(model, examples, reduce=False)
    torch.testing.assert_close(unreduced.sum(), value, **MODEL_TOLERANCE)


@pytest.mark.parametrize("alpha", (1.25, 1.5, 2.0))
def test_probabilities(alpha):
    model, examples = build(f"--output-alpha {alpha}").eval(), sample()
    output = model(**examples["net_input"])
    expected = entmax_oracle(5 * output[0], alpha)
    output = (5 * output[0], output[1])
    actual = model.get_normalized_probs(output, log_probs=False)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    logs = model.get_normalized_probs(output, log_probs=True)
    assert ((logs == -math.inf) == (actual == 0)).all() and (actual == 0).any()
    torch.testing.assert_close(logs.exp(), expected, rtol=0, atol=1e-12)


def test_an_annealed_alpha():
    flags = "--output-alpha 2 --output-alpha-start 1 --output-alpha-updates 10"
    model, examples = build(flags), sample()
    values = []
    for update in (0, 5, 10, 20):
        model.set_num_updates(update)
        logits = model(**examples["net_input"])[0]
        there = examples["target"] != dictionary().pad()
        alpha = 1 + min(1, update / 10)
        expected = entmax_loss(logits[there], examples["target"][there], alpha).sum()
        values.append(criterion()(model, examples)[0])
        torch.testing.assert_close(values[-1], expected, **MODEL_TOLERANCE)
    assert len({value.item() for value in values}) == 3


def test_models_that_it_cannot_train():
    stock = ARCH_MODEL_REGISTRY["transformer"]
    other = stock.build_model(parse("--encoder-embed-dim 16", "transformer"), translation_task())
    for model in (other, build()):
        with pytest.raises(SystemExit, match="needs a model of ours with --output-alpha, such as"):
            criterion()(model, sample())


def test_cross_entropy_cannot_train_a_sparse_output():
    model, examples = build("--output-alpha 1.5"), sample()
    output = model(**examples["net_input"])
    with pytest.raises(SystemExit, match="--criterion entmax_loss"):
        model.get_normalized_probs(output, log_probs=True)
    assert model.get_normalized_probs(output, log_probs=False).isfinite().all()
    assert model.eval().get_normalized_probs(output, log_probs=True) is not None


def rdrop(weight: float, alpha: float, *logits):
    """Loss of logits of both passes, (2, 7), for the target 3."""
    task = SimpleNamespace(target_dictionary=dictionary())
    normalizer = SimpleNamespace(is_softmax=False, alpha=lambda: alpha)

    class Model:
        training = True
        decoder = SimpleNamespace(output_normalizer=normalizer)

        def __call__(self, tokens):
            assert len(tokens) == 2
            return torch.stack(logits)[:, None], None

        def get_targets(self, sample, net_output):
            return sample["target"]

    example = {"net_input": {"tokens": torch.zeros(1, 1)}, "target": torch.tensor([[3]]), "ntokens": 1}
    return EntmaxLossCriterion(task, False, 0.0, weight)(Model(), example)[0]


@pytest.mark.parametrize("alpha", (1.0 + 1e-7, 1.5, 2.0))
def test_rdrop_is_the_mean_of_both_losses_and_their_divergence(alpha):
    z, y = (
        3 * torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in (1, 2)
    )
    target = torch.tensor(3)
    mean = (entmax_loss(z, target, alpha) + entmax_loss(y, target, alpha)) / 2
    p, q = entmax_oracle(z, alpha), entmax_oracle(y, alpha)
    if alpha < 1.1:
        between = ((p * (p / q).log()).sum() + (q * (q / p).log()).sum()) / 2
    else:  # L(z; q) = Ω*(z) + Ω(q) − ⟨z, q⟩, with Ω*(z) = ⟨z, p⟩ − Ω(p)

        def omega(x):
            return ((x**alpha).sum() - 1) / (alpha * (alpha - 1))

        losses = [(a @ z - omega(a)) + omega(b) - z @ b for z, a, b in ((z, p, q), (y, q, p))]
        between = sum(losses) / 2
        assert ((p == 0) != (q == 0)).any(), "the supports are the same"
    torch.testing.assert_close(rdrop(4.0, alpha, z, y), mean + 2 * between, rtol=0, atol=1e-5)
    torch.testing.assert_close(rdrop(4.0, alpha, z, z + 1), entmax_loss(z, target, alpha))
    assert torch.autograd.gradcheck(
        lambda z, y: rdrop(4.0, alpha, z, y), (z.requires_grad_(), y.requires_grad_())
    )


def test_rdrop_needs_dropout_and_training():
    criterion_with = EntmaxLossCriterion(SimpleNamespace(target_dictionary=dictionary()), False, 0.1, 5.0)
    still, examples = build("--output-alpha 1.5 --dropout 0"), sample()
    torch.testing.assert_close(criterion_with(still, examples)[0], criterion(0.1)(still, examples)[0])
    model = build("--output-alpha 1.5 --dropout 0.5")
    values = []
    for criterion_with.rdrop_weight in (1e-9, 5.0):
        torch.manual_seed(2)
        value, size, logged = criterion_with(model, examples)
        values.append(value)
    assert values[1] > 1.01 * values[0] and size == 14 and logged["nsentences"] == 3
    losses = criterion_with(model, examples, reduce=False)[0]
    assert torch.equal(losses > 0, examples["target"].flatten() != dictionary().pad())
    model.eval()
    torch.testing.assert_close(criterion_with(model, examples)[0], criterion(0.1)(model, examples)[0])
