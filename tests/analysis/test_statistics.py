"""All statistics compared with loops over sentences, heads, queries and keys; weights are not kept."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import head_oracle
import pytest
import torch
from helpers import build
from sentences import PAIRS, as_batch, dictionary, random_attention, without_padding

from user_dir.analysis.measuring import COLUMNS, HEAD_COLUMNS, Statistics, head_statistics
from user_dir.analysis.roles import ROLES, assign_roles, role_table
from user_dir.analysis.statistics import STATISTICS, diversity, support
from user_dir.analysis.words import Pieces

WORDS = {"source": {"who", "where"}, "target_input": {"where"}}


def statistics_of(model, words) -> Statistics:
    source, target = Pieces(words, "en"), Pieces(words, "en")
    source.interrogatives, target.interrogatives = map(frozenset, WORDS.values())
    return Statistics(model, source, target, words.pad())


@pytest.mark.parametrize("left_pad_source", [True, False])
def test_every_column_agrees_with_the_oracle(left_pad_source):
    words = dictionary()
    model = build("--encoder-attention-heads 2 --decoder-attention-heads 2")
    statistics = statistics_of(model, words)
    sentences = []
    for pairs in (PAIRS[:4], PAIRS[4:], PAIRS[2:3]):
        sample = as_batch(words, pairs, left_pad_source)
        captured = random_attention(words, sample, layers=2, heads=2)
        sentences += without_padding(words, sample, captured)
        statistics.add(sample, captured)
    result = statistics.result()
    assert result["sentences"] == len(PAIRS) + 1
    assert len(result["heads"]) == 12
    for row in result["heads"]:
        where = row["attention"], row["layer"], row["head"]
        expected = head_oracle.head(sentences, *where, WORDS)
        assert set(expected) | {"attention", "layer", "head", "alpha", "output_norm"} == set(row)
        head_oracle.assert_agree(row, expected, str(where), 1e-7)
        alpha = model.alphas()[where[0]][where[1]][where[2]]
        assert row["alpha"] == pytest.approx(float(alpha))
    for row in result["layers"]:
        expected = head_oracle.layer(sentences, row["attention"], row["layer"])
        head_oracle.assert_agree(row, expected, f"{row['attention']} {row['layer']}", 1e-9)
    defined = [row for row in result["heads"] if row["attention"] == "encoder_self"]
    assert all(value is not None for row in defined for value in row.values()), "the sentences lack a case"
    columns = [*HEAD_COLUMNS, *STATISTICS]
    assert list(COLUMNS)[: len(columns)] == columns == list(result["heads"][0])[3:]


def test_weights_count_as_shares():
    """ReLA's do not sum to 1."""
    words = dictionary()
    sample, results = as_batch(words, PAIRS, True), []
    captured = random_attention(words, sample, layers=2, heads=2)
    for factor in (1, 3):
        statistics = statistics_of(build("--encoder-attention-heads 2 --decoder-attention-heads 2"), words)
        statistics.add(sample, {name: [factor * w for w in layers] for name, layers in captured.items()})
        results.append(statistics.result())
    for name in ("diversity", "union_density"):
        first, second = ([row[name] for row in result["layers"]] for result in results)
        assert first == pytest.approx(second)
    for name in ("entropy", "density"):
        first, second = ([row[name] for row in result["heads"]] for result in results)
        assert first == pytest.approx(second)


def test_undefined_measures_are_none():
    words = dictionary()
    statistics = Statistics(
        build("--encoder-attention-heads 1"), Pieces(words, "xx"), Pieces(words, "xx"), words.pad()
    )
    sample = as_batch(words, [("", "")], True)
    captured = random_attention(words, sample, layers=2, heads=2)
    captured["encoder_self"] = [weights[:, :1] for weights in captured["encoder_self"]]
    statistics.add(sample, captured)
    result = statistics.result()
    undefined = ["confidence_previous", "confidence_next", "subword_merging", "subword_merging_split"]
    undefined += ["subword_merging_confidence", "interrogation", "interrogation_declarative"]
    assert {name for name, value in result["heads"][0].items() if value is None} == set(undefined)
    assert result["heads"][0]["confidence_current"] == 1
    diversities = {row["attention"]: row["diversity"] for row in result["layers"]}
    assert diversities["encoder_self"] is None, "a single head has nothing to differ from"
    assert diversities["decoder_self"] == 0


def test_output_norm_uses_the_columns_of_the_head():
    model = build()
    projection = model.decoder.layers[1].encoder_attn.out_proj
    with torch.no_grad():
        projection.weight.zero_()
        projection.weight[3, 8:] = 2.0  # 16 channels, two heads: the second has columns 8 to 15
    words = dictionary()
    statistics = statistics_of(model, words)
    sample = as_batch(words, PAIRS, True)
    captured = random_attention(words, sample, layers=2, heads=2)
    captured["encoder_self"] = [torch.cat([weights] * 2, 1) for weights in captured["encoder_self"]]
    statistics.add(sample, captured)
    norms = {
        row["head"]: row["output_norm"]
        for row in statistics.result()["heads"]
        if (row["attention"], row["layer"]) == ("decoder_context", 1)
    }
    assert norms == {0: 0.0, 1: pytest.approx((8 * 4) ** 0.5)}


def test_the_weights_of_a_batch_go_with_it():
    words, earlier = dictionary(), []
    pieces, sample = Pieces(words, "en"), as_batch(words, PAIRS, True)
    methods = {"samples": lambda **_: [sample] * 3, "pieces": lambda: (pieces, pieces)}

    def look(_, captured):
        assert not any(weights() is not None for weights in earlier)
        earlier[:] = [weakref.ref(weights) for layers in captured.values() for weights in layers]

    model = build("--attention-normalizer softmax").float()
    split = SimpleNamespace(model=model, padding=words.pad(), **methods)
    assert head_statistics(split, look)["sentences"] == 3 * len(PAIRS) and earlier


def test_support_counts_exact_zeros_only():
    weights = torch.tensor([[[[1.0, 0.0], [1 - 1e-30, 1e-30]]]], dtype=torch.float64)
    attended, pairs = support(weights, torch.tensor([[[True, False], [True, True]]]))
    assert (attended.tolist(), pairs.tolist()) == ([[3]], [3])


def test_diversity_is_1_for_disjoint_heads_and_0_for_identical_heads():
    apart = torch.eye(3, dtype=torch.float64)[None, :, None, :]  # each head attends to another key
    assert diversity(apart).item() == pytest.approx(1)
    assert diversity(apart[:, :1].expand(-1, 3, -1, -1)).item() == pytest.approx(0)


def row(attention: str, head: int, **values) -> dict:
    columns = dict.fromkeys((role.measure for role in ROLES.values()), 0.0)
    return {"attention": attention, "layer": 0, "head": head, **columns, **values}


def test_heads_are_ranked_and_named():
    heads = [
        row("encoder_self", 0, confidence_previous=0.9, eos=0.5),
        row("encoder_self", 1, confidence_previous=0.95),
        row("encoder_self", 2, interrogation=None),
        row("decoder_context", 0, confidence_previous=0.99),
    ]
    roles = assign_roles(heads)
    # Source positions are not before or after a target word.
    assert [head["roles"] for head in heads] == [
        ["previous position", "</s> sink"],
        ["previous position"],
        [],
        [],
    ]
    ranked = [(head["head"], head["value"]) for head in roles["previous position"]["heads"]]
    assert ranked == [(1, 0.95), (0, 0.9), (2, 0.0)]
    assert len(roles["interrogation"]["heads"]) == 3, "not defined for one"
    text = role_table(roles)
    assert "previous position (confidence_previous >= 0.8): 2 heads" in text
    assert "next position (confidence_next >= 0.8): 0 heads" in text
