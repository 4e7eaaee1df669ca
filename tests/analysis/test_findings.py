"""The paper's findings over seeds: figures compared with manual counts, and their tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from examples import statistics, write_alpha_log, write_statistics
from helpers import script_module
from scipy.stats import spearmanr

from user_dir.analysis.findings import (
    _modes_table,
    findings,
    findings_tables,
    importance,
    modes,
    pruning,
    roles,
    training,
)
from user_dir.analysis.sources import ModelAnalysis, read_model
from user_dir.analysis.trajectories import Trajectories
from user_dir.attention_types import ATTENTION_TYPES
from user_dir.errors import UserError
from user_dir.io import write_packed

IMPORTANCE = {
    "loss": 2.0,
    "heads": [{"importance": 0.5}, {"importance": -0.1}],
    "curves": {
        "importance": {"pruned": [0, 4, 8], "losses": [[2.0, 2.5, 5.0]]},
        "random": {"pruned": [0, 4, 8], "losses": [[2.0, 3.0, 5.0], [2.0, 4.0, 5.0]]},
    },
    "correlations": [
        {"attention": "all", "measure": "density", "spearman": -0.25, "p_value": 0.1},
        {"attention": "all", "measure": "alpha", "spearman": 0.75, "p_value": 0.1},
        {"attention": "encoder_self", "measure": "density", "spearman": None, "p_value": None},
        {"attention": "encoder_self", "measure": "alpha", "spearman": 0.5, "p_value": 0.3},
        {"attention": "encoder_self", "measure": "entropy", "spearman": 0.1, "p_value": 0.7},
    ],
}


def model(**more) -> ModelAnalysis:
    return ModelAnalysis("a", statistics(**more))


def heads_of(statistics: dict, kind: str, name: str) -> list:
    return [row[name] for row in statistics["heads"] if row["attention"] == kind]


def test_alpha_density_and_diversity_of_each_attention():
    seed = model(layers=3, heads=4)
    seed.statistics["heads"][0]["density"] = 1.0
    (found,) = findings([seed])["attention"]
    assert list(found) == list(ATTENTION_TYPES)
    densities = np.array(heads_of(seed.statistics, "encoder_self", "density"))
    mine = found["encoder_self"]
    assert mine["heads"] == 12 and mine["dense"] == (densities >= 0.98).sum() >= 1
    assert mine["sparse"] == (densities < 0.5).sum()
    assert mine["density_mean"] == pytest.approx(densities.mean())
    assert mine["alpha_max"] == max(heads_of(seed.statistics, "encoder_self", "alpha"))
    diversity = [row["diversity"] for row in seed.statistics["layers"] if row["attention"] == "encoder_self"]
    assert mine["diversity"] == pytest.approx(np.mean(diversity))
    assert findings([seed])["layers"][0]["encoder_self"] == diversity


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


def heads(densities: list[float]) -> dict:
    """The rows of encoder heads of one layer."""
    return {"heads": [{"attention": "encoder_self", "density": density} for density in densities]}


def test_modes_of_alpha_by_seed_and_over_all_seeds():
    def seed(alphas: list[float]) -> ModelAnalysis:
        kinds = [("encoder_self", alpha) for alpha in alphas] + [("decoder_self", 1.5)] * len(alphas)
        return ModelAnalysis("a", {"heads": [{"attention": kind, "alpha": alpha} for kind, alpha in kinds]})

    near = [1.2 + 0.01 * i for i in range(8)]
    far = [alpha + 0.6 for alpha in near]
    systems = {"apart": [near, far], "split": [[*near[:4], *far[:4]]]}
    found = {name: {"modes": [modes(seed(alphas)) for alphas in seeds]} for name, seeds in systems.items()}
    assert found["apart"]["modes"][0].keys() == {"encoder_self"}, "all α's of the decoder are the same"
    rows = [[cell.strip() for cell in line.split("|")[3:-1]] for line in _modes_table(found).split("\n")[2:4]]
    (first, second), together = map(float, rows[0][0].split(", ")), rows[0][1]
    assert min(first, second) > 0.1 and float(together.strip("< ")) < 0.05
    assert float(rows[1][0].strip("< ")) < 0.1 and rows[1][0] == rows[1][1]


def test_rank_correlation_of_the_first_alpha_with_the_last_and_with_density():
    def found(first, last, densities=(0.1, 0.4, 0.2, 0.3)):
        alphas = np.array([first, [1.1, 1.2, 1.3, 1.4], last])[:, None]  # (U, 1, H)
        trajectories = Trajectories([0, 100, 200], {"encoder_self": alphas})
        return training(ModelAnalysis("a", heads(densities), trajectories))["encoder_self"]

    def start_kept(first, last):
        return found(first, last)["first_last"][0]

    assert found([1.2, 1.4, 1.6, 1.8], [1.5] * 4)["first_density"] == pytest.approx(
        (1 - 6 * 6 / (4 * 15), spearmanr([1, 2, 3, 4], [1, 4, 2, 3]).pvalue)
    )

    assert start_kept([1.2, 1.4, 1.6, 1.8], [1.19, 1.2, 1.25, 1.9]) == pytest.approx(1), "in rank"
    assert start_kept([1.2, 1.4, 1.6, 1.8], [1.4, 1.3, 1.2, 1.1]) == pytest.approx(-1)
    assert start_kept([1.2, 1.4, 1.6, 1.8], [1.3, 1.2, 1.4, 1.1]) == pytest.approx(1 - 6 * 14 / (4 * 15))
    assert start_kept([1.5] * 4, [1.4, 1.3, 1.2, 1.1]) is None, "all began alike"
    assert start_kept([1.2, 1.4, 1.6, 1.8], [1.0] * 4) is None


def test_loss_added_by_pruning_a_share_of_the_heads():
    found = pruning(ModelAnalysis("a", {}, importance=IMPORTANCE))
    assert found["most_important"] == 0.5
    assert found["added"]["importance"] == pytest.approx({"0.25": 0.25, "0.5": 0.5, "0.75": 1.75})
    assert found["added"]["random"]["0.5"] == pytest.approx(1.5), "the mean of the orders"


def test_importance_is_correlated_within_each_attention_type():
    found = importance(ModelAnalysis("a", {}, importance=IMPORTANCE))
    assert found == {"encoder_self": {"density": (None, None), "alpha": (0.5, 0.3)}}
    assert importance(ModelAnalysis("a", {})) is None


def test_correlations_are_starred_by_holm_over_the_table():
    def seed(p_values):
        rows = [
            {"attention": kind, "measure": measure, "spearman": -0.5, "p_value": p}
            for kind, pair in zip(ATTENTION_TYPES, p_values)
            for measure, p in zip(("density", "alpha"), pair)
        ]
        return ModelAnalysis("a", statistics(), importance={**IMPORTANCE, "correlations": rows})

    p_values = [[(0.001, 0.2), (0.3, 0.4), (0.5, 0.6)], [(0.005, 0.7), (0.8, 0.9), (0.99, 0.02)]]
    text = findings_tables({"one": findings(list(map(seed, p_values)))})
    section = text.split("**Importance of heads**")[1].split("**Pruning**")[0]
    assert "| -0.50*, -0.50 " in section, "0.001 of twelve tests, and 0.005 of the eleven left: 0.055"
    assert section.count("-0.50*") == 1 and "Holm" in section


def test_files_next_to_the_statistics_are_read(tmp_path):
    path = write_statistics(tmp_path / "average.heads.json")
    assert read_model(path).trajectories is read_model(path).importance is None
    write_alpha_log(tmp_path / "alpha.jsonl")
    (tmp_path / "average.importance.json").write_text(json.dumps(IMPORTANCE))
    found = read_model(path)
    assert found.trajectories.updates[-1] == 400 and found.importance["loss"] == 2.0

    packed = tmp_path / "packed" / "average.heads.json.bz2"
    for name in ("average.heads.json", "average.importance.json", "alpha.jsonl"):
        write_packed(packed.with_name(f"{name}.bz2"), (tmp_path / name).read_text())
    again = read_model(packed)
    assert (again.statistics, again.importance) == (found.statistics, found.importance)
    assert again.trajectories.updates == found.trajectories.updates

    for wrong in ("[]", "{", '{"loss": 1}', json.dumps({**IMPORTANCE, "curves": {"a": {"pruned": [1]}}})):
        (tmp_path / "average.importance.json").write_text(wrong)
        with pytest.raises(UserError, match=r"average.importance.json is not written by head_importance.py"):
            read_model(path)
    (tmp_path / "average.importance.json").unlink()
    write_alpha_log(tmp_path / "alpha.jsonl", layers=3)
    with pytest.raises(UserError, match="they are of another model"):
        read_model(path)


def test_tables_show_mean_and_deviation_over_seeds_and_omit_missing_findings():
    fixed, learned = [model(seed=1), model(seed=2)], [model(seed=3)]
    text = findings_tables({"softmax": findings(fixed), "α-entmax": findings(learned)})
    densities = [np.mean(heads_of(each.statistics, "encoder_self", "density")) for each in fixed]
    assert f"{np.mean(densities):.3f} ± {np.std(densities, ddof=1):.3f}" in text
    assert "α over training" not in text and "Pruning" not in text
    whole = ModelAnalysis(
        "b", statistics(), Trajectories([0], {"encoder_self": np.full((1, 2, 3), 1.5)}), None, IMPORTANCE
    )
    text = findings_tables({"softmax": findings(fixed), "whole": findings([whole])})
    assert "α over training" in text
    (row,) = [line for line in text.split("\n") if "| importance" in line]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == ["whole", "2.000", "0.500", "importance", "0.250", "0.500", "1.750"]


def test_the_weight_on_source_and_translation_is_shown_of_post_editors():
    editor, other = model(seed=1), model(seed=2)
    for row in editor.statistics["heads"]:
        sees = row["attention"] != "decoder_self"
        row |= {"on_source": 0.5 if row["head"] else 0.7} if sees else {"on_source": None}
        row |= {"on_separator": 0.1, "on_translation": 0.25}
    found = findings([editor])
    assert found["parts"][0].keys() == {"encoder_self", "decoder_context"}
    weights = heads_of(editor.statistics, "encoder_self", "on_source")
    assert found["parts"][0]["encoder_self"]["on_source"] == pytest.approx(np.mean(weights))
    text = findings_tables({"editor": found, "other": findings([other])})
    _, _, shown = text.partition("**Weight on the parts of the input**")
    rows = [line for line in shown.partition("**")[0].split("\n") if "0.250" in line]
    assert len(rows) == 2 and all("| editor " in row for row in rows)
    assert "parts of the input" not in findings_tables({"other": findings([other])})


def test_the_command_line_writes_its_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "scripts")
    files = [str(write_statistics(tmp_path / f"{name}.heads.json", seed=ord(name))) for name in "abc"]
    main = script_module("compare_heads").main
    table = tmp_path / "table.md"
    main(["--system", "one", *files[:2], "--system", "other", files[2], "--output", str(table)])
    assert table.read_text() == capsys.readouterr().out
    figures = json.loads(table.with_suffix(".json").read_text())
    assert figures["files"]["other"] == files[2:] and len(figures["systems"]["one"]["roles"]) == 2
    with pytest.raises(UserError, match="cannot read the statistics"):
        main(["--system", "one", str(tmp_path / "none.heads.json")])
    for wrong, said in {
        ("--system", "one"): "--system one: give a name, and then a file",
        ("--system", "one", files[0], "--system", "one", files[1]): "two systems are named one",
    }.items():
        with pytest.raises(SystemExit):
            main(wrong)
        assert said in capsys.readouterr().err
