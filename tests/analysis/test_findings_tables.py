"""The tables of findings, and the command line that prints them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from examples import heads_of, importance, model, statistics, write_statistics
from helpers import cells_of, script_module

from user_dir.analysis.findings import findings, modes
from user_dir.analysis.findings_tables import _modes_table, findings_tables
from user_dir.analysis.result_files import ModelAnalysis
from user_dir.analysis.trajectories import Trajectories
from user_dir.attention_types import ATTENTION_TYPES
from user_dir.errors import UserError


def test_modes_of_alpha_by_seed_and_over_all_seeds():
    def seed(alphas: list[float]) -> ModelAnalysis:
        kinds = [("encoder_self", alpha) for alpha in alphas] + [("decoder_self", 1.5)] * len(alphas)
        return ModelAnalysis("a", {"heads": [{"attention": kind, "alpha": alpha} for kind, alpha in kinds]})

    near = [1.2 + 0.01 * i for i in range(8)]
    far = [alpha + 0.6 for alpha in near]
    systems = {"apart": [near, far], "split": [[*near[:4], *far[:4]]]}
    found = {name: [modes(seed(alphas)) for alphas in seeds] for name, seeds in systems.items()}
    assert found["apart"][0].keys() == {"encoder_self"}, "all α's of the decoder are the same"
    rows = [row[2:] for row in cells_of(_modes_table(found))[2:4]]
    (first, second), together = map(float, rows[0][0].split(", ")), rows[0][1]
    assert min(first, second) > 0.1 and float(together.strip("< ")) < 0.05
    assert float(rows[1][0].strip("< ")) < 0.1 and rows[1][0] == rows[1][1]


def test_correlations_are_starred_by_holm_over_the_table():
    def seed(p_values):
        rows = [
            {"attention": kind, "measure": measure, "spearman": -0.5, "p_value": p}
            for kind, pair in zip(ATTENTION_TYPES, p_values)
            for measure, p in zip(("density", "alpha"), pair)
        ]
        return ModelAnalysis("a", statistics(), importance={**importance(), "correlations": rows})

    p_values = [[(0.001, 0.2), (0.3, 0.4), (0.5, 0.6)], [(0.005, 0.7), (0.8, 0.9), (0.99, 0.02)]]
    text = findings_tables({"one": findings(list(map(seed, p_values)))})
    section = text.split("**Importance of heads**")[1].split("**Pruning**")[0]
    assert "| -0.50*, -0.50 " in section, "0.001 of twelve tests, and 0.005 of the eleven left: 0.055"
    assert section.count("-0.50*") == 1 and "Holm" in section


def test_tables_show_mean_and_deviation_over_seeds_and_omit_missing_findings():
    fixed, learned = [model(seed=1), model(seed=2)], [model(seed=3)]
    text = findings_tables({"softmax": findings(fixed), "α-entmax": findings(learned)})
    densities = [np.mean(heads_of(each, "encoder_self", "density")) for each in fixed]
    assert f"{np.mean(densities):.3f} ± {np.std(densities, ddof=1):.3f}" in text
    assert "α over training" not in text and "Pruning" not in text
    whole = ModelAnalysis(
        "b", statistics(), Trajectories([0], {"encoder_self": np.full((1, 2, 3), 1.5)}), None, importance()
    )
    text = findings_tables({"softmax": findings(fixed), "whole": findings([whole])})
    assert "α over training" in text
    (row,) = [line for line in text.split("\n") if "| importance" in line]
    (cells,) = cells_of(row)
    most = max(each["importance"] for each in importance()["heads"])
    assert cells == ["whole", "2.000", f"{most:.3f}", "importance", "0.250", "0.500", "1.750"]


def test_diversity_and_density_of_each_layer_over_seeds():
    systems = {"deep": [model(seed=1), model(seed=2)], "shallow": [model(layers=1, seed=3)]}
    text = findings_tables({name: findings(models) for name, models in systems.items()})
    deep, shallow = _layer_rows(text, "Density by layer, least to greatest")
    densities = np.array([heads_of(each, "encoder_self", "density") for each in systems["deep"]])
    for layer in (0, 1):
        mine = densities.reshape(2, 2, 3)[:, layer]  # seeds, layers, heads
        assert deep[2 + layer] == f"{mine.min():.3f}–{mine.max():.3f}"
    assert shallow[2] and shallow[3] == ""
    deep, shallow = _layer_rows(text, "Diversity by layer")
    assert "±" in deep[3] and shallow[3] == ""


def _layer_rows(text: str, title: str) -> list[list[str]]:
    """The cells of the encoder's rows of a table."""
    section = text.split(f"**{title}**")[1].split("**")[0]
    return [row for row in cells_of(section) if row[0] == "encoder self"]


def test_heads_that_rose_again_are_listed_by_model():
    def seed(number: int, risen: tuple[str, ...]) -> ModelAnalysis:
        alphas = {kind: np.full((3, 2, 3), 1.5) for kind in ATTENTION_TYPES}
        for kind in risen:
            alphas[kind][:, 1, 2] = [1.6, 1.2, 1.5]
        return ModelAnalysis("a", statistics(seed=number), Trajectories([0, 100, 200], alphas))

    systems = {
        "α-entmax": findings([seed(1, ()), seed(2, ("decoder_self",))]),
        "softmax": findings([model()]),
    }
    section = findings_tables(systems).split("**Heads whose α rose again**")[1].split("**Roles**")[0]
    (cells,) = [row for row in cells_of(section) if "α-entmax" in row]
    assert cells[:4] == ["decoder self", "α-entmax", "2", "1.2"]
    assert cells[4:8] == ["1.60", "1.20", "100", "1.50"] and cells[10] == "", "importance was not measured"
    assert "rose again" not in findings_tables({"α-entmax": findings([seed(1, ())])})


def test_the_weight_on_source_and_translation_is_shown_of_post_editors():
    editor, other = model(seed=1), model(seed=2)
    for row in editor.statistics["heads"]:
        sees = row["attention"] != "decoder_self"
        row |= {"on_source": 0.5 if row["head"] else 0.7} if sees else {"on_source": None}
        row |= {"on_separator": 0.1, "on_translation": 0.25}
    found = findings([editor])
    assert found["parts"][0].keys() == {"encoder_self", "decoder_context"}
    weights = heads_of(editor, "encoder_self", "on_source")
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
    with pytest.raises(UserError, match="cannot read"):
        main(["--system", "one", str(tmp_path / "none.heads.json")])
    for wrong, said in {
        ("--system", "one"): "--system one: give a name, and then a file",
        ("--system", "one", files[0], "--system", "one", files[1]): "two systems are named one",
    }.items():
        with pytest.raises(SystemExit):
            main(wrong)
        assert said in capsys.readouterr().err
