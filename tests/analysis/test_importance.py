"""Head importance: masks, orders and correlations, compared with simpler code."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from examples import all_heads
from helpers import batch, build, dictionary, loss
from scipy.stats import permutation_test, spearmanr

from user_dir.analysis.capture import masked_heads
from user_dir.analysis.importance import (
    correlations,
    head_importance,
    losses,
    pruning_orders,
    rank_correlation,
)
from user_dir.analysis.plots import importance as importance_figure

PAD = dictionary().pad()


def sample_of(tokens: dict) -> dict:
    inputs = {name: tokens[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}
    return {"id": torch.tensor([2, 0, 1]), "net_input": inputs, "target": tokens["target"]}


def rows_of(model, **columns) -> list[dict]:
    return [
        {"attention": attention, "layer": layer, "head": head, **{name: f(i) for name, f in columns.items()}}
        for i, (attention, layer, head) in enumerate(all_heads(model))
    ]


def test_losses_are_per_token_over_all_batches():
    model = build().eval()
    tokens = [batch(), batch(left_pad=False)]
    tokens[1]["target"] = tokens[1]["target"].roll(1, 0)
    masks = [[], [("encoder_self", 0, 1)], all_heads(model)]
    values = losses(model, [sample_of(sample) for sample in tokens], PAD, masks)
    for mask, value in zip(masks, values):
        with torch.no_grad(), masked_heads(model, mask):
            expected = sum(float(loss(model, sample)) for sample in tokens)
        assert value == pytest.approx(expected / 28, rel=1e-6)
    assert len(set(values)) == 3


def test_importance_is_the_loss_added():
    model = build().eval()
    rows = rows_of(model, density=lambda i: 0.9 - i / 20, alpha=lambda i: 1 + i / 20, entropy=lambda i: 1.0)
    samples = [sample_of(batch())]
    split = SimpleNamespace(model=model, samples=lambda: samples, padding=PAD)
    report = head_importance(split, rows, points=4, seeds=2)
    (base,) = losses(model, samples, PAD, [[]])
    assert report["loss"] == base
    for row in report["heads"]:
        (without,) = losses(model, samples, PAD, [[(row["attention"], row["layer"], row["head"])]])
        assert row["loss"] == without
        assert row["importance"] == without - base
    curves = report["curves"]
    orders = {name: len(curve["losses"]) for name, curve in curves.items()}
    assert orders == {"importance": 1, "density": 1, "alpha": 1, "random": 2}
    (bare,) = losses(model, samples, PAD, [all_heads(model)])
    least = min(report["heads"], key=lambda row: row["importance"])
    for curve in curves.values():
        assert curve["pruned"] == [0, 4, 8, 12, 16]
        for line in curve["losses"]:
            assert line[0] == base
            assert line[-1] == pytest.approx(bare)
    assert curves["density"] == curves["alpha"], "here α falls as density rises"
    first = pruning_orders(report["heads"], 1)["importance"][0][0]
    assert first == (least["attention"], least["layer"], least["head"])

    figure = importance_figure(report)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["loss (nats per token)", "importance (nats per token)"]
    lines = {line.get_label(): line.get_xydata() for line in figure.axes[0].get_lines()}
    assert len(lines) == 4
    densest = zip(curves["density"]["pruned"], curves["density"]["losses"][0])
    assert lines["densest first"].tolist() == list(map(list, densest))


def test_orders_keep_sparse_heads_longest():
    rows = [
        {"attention": "encoder_self", "layer": 0, "head": i, "density": d, "alpha": a, "importance": m}
        for i, (d, a, m) in enumerate([(0.9, 1.2, 3.0), (1.0, 1.3, 1.0), (0.1, 1.1, 2.0)])
    ]
    orders = pruning_orders(rows, seeds=3)
    heads = {name: [[head[2] for head in order] for order in by_seed] for name, by_seed in orders.items()}
    assert heads["importance"] == [[1, 2, 0]]
    assert heads["density"] == [[1, 0, 2]]
    assert heads["alpha"] == [[2, 0, 1]]
    assert [sorted(order) for order in heads["random"]] == [[0, 1, 2]] * 3
    assert pruning_orders(rows, seeds=3)["random"] == orders["random"], "random, but the same each time"
    for row in rows:
        row["alpha"] = 1.0
    assert set(pruning_orders(rows, seeds=1)) == {"importance", "density", "random"}
    for row in rows:
        row["density"] = 1.0
    assert set(pruning_orders(rows, seeds=1)) == {"importance", "random"}


def ranks(values: list[float]) -> list[float]:
    """Ranks, with the mean rank for ties."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def test_correlation_is_that_of_ranks():
    generator = torch.Generator().manual_seed(5)
    model = build()
    random = torch.rand(3, 16, generator=generator, dtype=torch.float64).mul(6).round().tolist()
    rows = rows_of(model, importance=random[0].__getitem__, density=random[1].__getitem__)
    for row, entropy in zip(rows, random[2]):
        row |= {"alpha": 1.5, "entropy": entropy}
    table = {(row["attention"], row["measure"]): row for row in correlations(rows)}
    assert len(table) == 4 * 3
    assert table["all", "alpha"]["spearman"] is None
    for attention in ("all", "encoder_self", "decoder_context"):
        chosen = [row for row in rows if attention in ("all", row["attention"])]
        a, b = (torch.tensor(ranks([row[name] for row in chosen])) for name in ("density", "importance"))
        expected = float(torch.corrcoef(torch.stack([a, b]))[0, 1])
        assert table[attention, "density"]["spearman"] == pytest.approx(expected, abs=1e-6)
        assert 0 <= table[attention, "density"]["p_value"] <= 1


@pytest.mark.parametrize("heads", (3, 4, 5))
def test_the_p_value_of_few_heads_is_exact(heads):
    """As of scipy's test over all permutations; by the approximation for many, three heads would suffice."""
    random = np.random.default_rng(heads)
    first = np.arange(heads)
    for second in (random.random(heads), random.integers(0, 3, heads), first, -first):
        exact = permutation_test(
            (second,), lambda perm: spearmanr(first, perm)[0], permutation_type="pairings", n_resamples=np.inf
        )
        rho, p = rank_correlation(first, second)
        assert rho == pytest.approx(exact.statistic)
        assert p == pytest.approx(exact.pvalue)
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx((1, 1 / 3))
