"""The paper's findings over seeds, compared with manual counts."""

from __future__ import annotations

import numpy as np
import pytest
from examples import heads_of, model
from examples import importance as measured

from user_dir.analysis.findings import findings, importance, pruning, rising, roles, training
from user_dir.analysis.result_files import ModelAnalysis
from user_dir.analysis.trajectories import Trajectories
from user_dir.attention_types import ATTENTION_TYPES


def test_alpha_density_and_diversity_of_each_attention():
    seed = model(layers=3, heads=4)
    seed.statistics["heads"][0]["density"] = 1.0
    (found,) = findings([seed])["attention"]
    assert list(found) == list(ATTENTION_TYPES)
    densities = np.array(heads_of(seed, "encoder_self", "density"))
    mine = found["encoder_self"]
    assert mine["heads"] == 12 and mine["dense"] == (densities >= 0.98).sum() >= 1
    assert mine["sparse"] == (densities < 0.5).sum()
    assert mine["density_mean"] == pytest.approx(densities.mean())
    assert mine["alpha_max"] == max(heads_of(seed, "encoder_self", "alpha"))
    diversity = [row["diversity"] for row in seed.statistics["layers"] if row["attention"] == "encoder_self"]
    by_layer = findings([seed])["layers"][0]["encoder_self"]
    assert mine["diversity"] == pytest.approx(np.mean(diversity))
    assert [layer["diversity"] for layer in by_layer] == diversity
    densities = densities.reshape(3, 4)
    assert [layer["density_min"] for layer in by_layer] == list(densities.min(1))
    assert [layer["density_max"] for layer in by_layer] == list(densities.max(1))


def test_the_best_head_of_each_measure_and_the_heads_of_each_role():
    seed = model()
    for row in seed.statistics["heads"]:
        row["confidence_previous"] = None if row["attention"] == "encoder_self" else 0.1
        row["interrogation"] = None
    best, second, context = (seed.statistics["heads"][i] for i in (8, 9, 13))
    assert context["attention"] == "decoder_context" and best["attention"] == "decoder_self"
    best["confidence_previous"], second["confidence_previous"] = 0.95, 0.8
    context["confidence_previous"] = 1.0  # source positions do not precede the query
    found = roles(seed)
    previous = found["confidence_previous"]
    assert previous["value"] == 0.95 and previous["reached"] == 2
    assert previous["alpha"] == best["alpha"] and previous["attention"] == "decoder_self"
    assert "interrogation" not in found, "a corpus without questions"


def test_alphas_that_fell_and_then_rose():
    path = {
        "falls and rises": [1.6, 1.4, 1.3, 1.5],
        "falls": [1.6, 1.5, 1.4, 1.4],
        "falls, and rises too little": [1.6, 1.4, 1.3, 1.34],
        "rises": [1.3, 1.4, 1.5, 1.6],
        "rises, falls back": [1.3, 1.6, 1.5, 1.4],
        "stays": [1.5, 1.48, 1.49, 1.5],
    }
    alphas = np.array(list(path.values())).T[:, None]  # (U, 1, H)
    seed = ModelAnalysis("a", heads([0.5] * 6), Trajectories([0, 100, 200, 300], {"encoder_self": alphas}))
    found = training(seed)["encoder_self"]
    assert (found["heads"], found["fell"], found["turned"], found["turned_at"]) == (6, 3, 1, 200)
    assert found["alpha_first"] == pytest.approx(alphas[0].mean())
    assert found["spread_last"] == pytest.approx(alphas[-1].std())


def test_alphas_that_come_together_and_part_again():
    alphas = np.array([[1.2, 1.8], [1.3, 1.5], [1.2, 1.3], [1.1, 1.7]])[:, None]  # (U, 1, H)
    trajectories = Trajectories([0, 100, 200, 300], {"encoder_self": alphas})
    found = training(ModelAnalysis("a", heads([0.5, 0.5]), trajectories))["encoder_self"]
    path = [found[f"{name}_{at}"] for name in ("alpha", "spread") for at in ("first", "least", "last")]
    assert path == pytest.approx([1.5, 1.25, 1.4, 0.3, 0.05, 0.3])


def test_a_head_that_rose_again_is_named_with_its_path_density_and_importance():
    seed = model(layers=2, heads=2)
    alphas = np.full((4, 2, 2), 1.4)
    alphas[:, 0, 1] = [1.6, 1.5, 1.4, 1.3]
    alphas[:, 1, 0] = [1.8, 1.3, 1.2, 1.25]
    trajectories = Trajectories([0, 100, 200, 300], {"encoder_self": alphas, "decoder_context": alphas + 0.1})
    places = [{"attention": "encoder_self", "layer": layer, "head": head} for layer, head in np.ndindex(2, 2)]
    measured = [{**place, "importance": value} for place, value in zip(places, [0.1, 0.4, 0.3, -0.2])]
    measured.append({**places[2], "attention": "decoder_self", "importance": 0.5})
    found = rising(ModelAnalysis("a", seed.statistics, trajectories, importance={"heads": measured}))
    densities = heads_of(seed, "encoder_self", "density")
    previous = heads_of(seed, "encoder_self", "confidence_previous")
    expected = {
        "alpha_first": 1.8,
        "alpha_least": 1.2,
        "least_at": 200,
        "alpha_last": 1.25,
        "density": densities[2],
        "density_rank": sorted(densities).index(densities[2]) + 1,
        "confidence_previous": previous[2],
        "confidence_previous_rank": sorted(previous, reverse=True).index(previous[2]) + 1,
        "importance": 0.3,
        "importance_rank": 2,
    }
    assert found[0] == {**places[2], **expected}
    assert found[1]["attention"] == "decoder_context" and found[1]["alpha_least"] == pytest.approx(1.3)
    assert found[1]["importance"] is found[1]["importance_rank"] is None, "not measured"
    assert rising(seed) is None and rising(ModelAnalysis("a", seed.statistics, Trajectories([0], {}))) == []


def heads(densities: list[float]) -> dict:
    """The rows of encoder heads of one layer."""
    return {"heads": [{"attention": "encoder_self", "density": density} for density in densities]}


def test_rank_correlation_of_the_first_alpha_with_the_last_and_with_density():
    def found(first, last, densities=(0.1, 0.4, 0.2, 0.3)):
        alphas = np.array([first, [1.1, 1.2, 1.3, 1.4], last])[:, None]  # (U, 1, H)
        trajectories = Trajectories([0, 100, 200], {"encoder_self": alphas})
        return training(ModelAnalysis("a", heads(densities), trajectories))["encoder_self"]

    def start_kept(first, last):
        return found(first, last)["first_last"][0]

    assert found([1.2, 1.4, 1.6, 1.8], [1.5] * 4)["first_density"] == pytest.approx(
        (1 - 6 * 6 / (4 * 15), 18 / 24)  # of 24 orders, 18 have a ρ as far from 0
    )

    assert start_kept([1.2, 1.4, 1.6, 1.8], [1.19, 1.2, 1.25, 1.9]) == pytest.approx(1), "in rank"
    assert start_kept([1.2, 1.4, 1.6, 1.8], [1.4, 1.3, 1.2, 1.1]) == pytest.approx(-1)
    assert start_kept([1.2, 1.4, 1.6, 1.8], [1.3, 1.2, 1.4, 1.1]) == pytest.approx(1 - 6 * 14 / (4 * 15))
    assert start_kept([1.5] * 4, [1.4, 1.3, 1.2, 1.1]) is None, "all began alike"
    assert start_kept([1.2, 1.4, 1.6, 1.8], [1.0] * 4) is None


def test_loss_added_by_pruning_a_share_of_the_heads():
    found = pruning(ModelAnalysis("a", {}, importance=measured()))
    assert found["most_important"] == max(row["importance"] for row in measured()["heads"])
    assert found["added"]["importance"] == pytest.approx({"0.25": 0.25, "0.5": 0.5, "0.75": 1.75})
    assert found["added"]["random"]["0.5"] == pytest.approx(1.5), "the mean of the orders"


def test_importance_is_correlated_within_each_attention_type():
    found = importance(ModelAnalysis("a", {}, importance=measured()))
    none = {"density": (0.0, 1.0), "alpha": (0.0, 1.0)}
    assert found == {
        "encoder_self": {"density": (None, None), "alpha": (0.5, 0.3)},
        "decoder_self": none,
        "decoder_context": none,
    }
    assert importance(ModelAnalysis("a", {})) is None
