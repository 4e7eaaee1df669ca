"""Figures show the data, have labels, are distinguishable in greyscale, and are saved completely."""

from __future__ import annotations

import re

import numpy as np
import pytest
from examples import lightness, panels, sentence, statistics, write_alpha_log

from user_dir.analysis import plots
from user_dir.analysis.plots import WEIGHT_COLOURS, head_maps
from user_dir.analysis.results import ModelAnalysis
from user_dir.analysis.trajectories import read_trajectories
from user_dir.attention.types import ATTENTION_TYPES, TITLES
from user_dir.errors import UserError

MODELS = {"sparse": statistics(seed=1), "dense": statistics(seed=2)}


@pytest.fixture
def trajectories(tmp_path):
    return read_trajectories(write_alpha_log(tmp_path / "alpha.jsonl", layers=3, heads=2))


def test_trajectories_show_every_head(trajectories):
    figure = plots.alpha_trajectories(trajectories)
    assert [axes.get_title() for axes in panels(figure)] == [TITLES[name] for name in ATTENTION_TYPES]
    for axes, name in zip(panels(figure), ATTENTION_TYPES):
        drawn = [tuple(line.get_ydata()) for line in axes.lines]
        expected = map(tuple, trajectories.alphas[name].reshape(5, -1).T)
        assert sorted(drawn) == sorted(expected)
        assert axes.get_xlabel() == "updates"
        low, high = axes.get_ylim()
        assert low <= min(map(min, drawn))
        assert high >= max(map(max, drawn))
    assert panels(figure)[0].get_ylabel() == "α"
    assert [text.get_text() for text in figure.legends[0].texts] == ["layer 0", "layer 1", "layer 2"]
    shades = [lightness(line.get_color()) for line in panels(figure)[0].lines][::2]
    assert shades == sorted(shades), "layers do not get lighter one by one in grey"
    assert np.diff(shades).min() > 0.05


def test_alpha_histograms_count_every_head():
    def with_alphas(**by_type: list[float]) -> dict:
        rows = [{"attention": kind, "alpha": alpha} for kind, alphas in by_type.items() for alpha in alphas]
        return {"heads": rows}

    ours = with_alphas(encoder_self=[1.0, 1.26, 1.49, 2.0], decoder_self=[1.5, 1.5, 1.5])
    figure = plots.alpha_histograms({"ours": ours, "wide": with_alphas(encoder_self=[2.32])})
    first, second, third, fourth = panels(figure)
    heights = {round(bar.get_x(), 2): bar.get_height() for bar in first.patches}
    assert {left for left, height in heights.items() if height} == {1.0, 1.25, 1.45, 2.0}
    assert sum(bar.get_height() for bar in second.patches) == 3
    assert sum(bar.get_height() for bar in third.patches) == 1
    assert sum(bar.get_height() for bar in fourth.patches) == 0
    assert third.get_xlabel() == "α"
    assert third.get_ylabel() == "wide\nheads"
    figure = plots.alpha_histograms({"sparsemax": with_alphas(encoder_self=[2.0, 2.0])})
    assert panels(figure)[0].patches[-1].get_height() == 2, "the default's maximum"


def test_a_model_may_lack_an_attention_type():
    """A language model beside a translation model: its panels are empty."""
    kinds = {"heads": "decoder_self", "layers": "decoder_self"}
    other = statistics(seed=3)
    other |= {part: [row for row in other[part] if row["attention"] == kind] for part, kind in kinds.items()}
    drawn = plots.figures([ModelAnalysis("a", MODELS["sparse"]), ModelAnalysis("lm", other)])
    for figure in drawn.values():
        figure.draw_without_rendering()
    counts = [len(axes.lines) for axes in panels(drawn["sorted_densities"])]
    assert counts == [4, 4, 4, 0, 4, 0]


@pytest.mark.parametrize("order", ("ab", "ba"))
def test_axes_hold_all_models(order):
    models = {"a": statistics(seed=1, layers=2), "b": statistics(seed=2, layers=5)}
    for row in models["b"]["layers"]:
        row["diversity"] += 0.5
    for axes in panels(plots.diversity({name: models[name] for name in order})):
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        drawn = np.concatenate([line.get_xydata() for line in axes.lines])
        assert low == 0 and (drawn > [left, low]).all() and (drawn < [right, high]).all()


def test_density_histograms_are_shares():
    figure = plots.density_histograms(MODELS)
    for axes, name in zip(panels(figure), ATTENTION_TYPES):
        assert axes.get_xlabel().startswith("density")
        outlines = [patch for patch in axes.patches if not patch.get_fill()]
        assert [patch.get_label() for patch in outlines] == ["sparse", "dense"]
        for patch, model in zip(outlines, MODELS.values()):
            rows = [row["density_histogram"] for row in model["heads"] if row["attention"] == name]
            expected = [sum(column) / (50 * len(rows)) for column in zip(*rows)]
            assert np.allclose(patch.get_data().values, expected)


def test_sorted_densities_connect_the_kth_densest():
    figure = plots.sorted_densities(MODELS)
    axes = panels(figure)[0]
    rows = [row for row in MODELS["sparse"]["heads"] if row["attention"] == "encoder_self"]
    layers = [sorted((r["density"] for r in rows if r["layer"] == layer), reverse=True) for layer in (0, 1)]
    lines = [list(line.get_ydata()) for line in axes.lines]
    assert lines[:3] == [list(pair) for pair in zip(*layers)]
    union = [row["union_density"] for row in MODELS["sparse"]["layers"] if row["attention"] == "encoder_self"]
    assert lines[3] == union
    assert len(panels(figure)) == 6
    assert [text.get_text() for text in figure.legends[0].texts] == [
        "sparse: k-th densest head of each layer",
        "union of the heads' supports",
        "dense: k-th densest head of each layer",
    ]
    alone = plots.sorted_densities({"sparse": MODELS["sparse"]})
    assert alone.legends[0].texts[0].get_text() == "k-th densest head of each layer"


def test_models_differ_without_colour():
    lines = panels(plots.diversity({str(i): statistics(seed=i) for i in range(6)}))[0].lines
    assert len({line.get_marker() for line in lines}) == 6
    shades = [lightness(line.get_color()) for line in lines]
    assert np.abs(np.diff(shades)).min() > 0.1, "two models that follow each other look alike in grey"


def test_figures_are_saved_completely_and_reproducibly(tmp_path):
    figures = [plots.diversity(MODELS) for _ in range(2)]
    for name, figure in zip(("one.svg", "two.svg"), figures):
        plots.save(figure, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert re.search(r"<text[^>]*>layer</text>", (tmp_path / "one.svg").read_text()), "text became paths"
    for kind, start in (("pdf", b"%PDF"), ("png", b"\x89PNG")):
        plots.save(figures[0], tmp_path / f"one.{kind}")
        assert (tmp_path / f"one.{kind}").read_bytes().startswith(start)
    with pytest.raises(UserError, match=r"figure.jpg must end in \.svg, \.pdf, \.png"):
        plots.save(figures[0], tmp_path / "figure.jpg")


def test_exact_zeros_are_empty():
    maps = sentence()
    shown = ("decoder_context", "decoder_self")
    figure = head_maps([(maps, (name, 1, 2), "ours") for name in shown])
    for axes, name in zip(panels(figure), shown):
        weights, keys = maps.head(name, 1, 2), maps.keys(name)
        assert not axes.images, "a picture of pixels, which viewers blur"
        drawn = axes.collections[0].get_array()
        assert (np.ma.getmaskarray(drawn) == (weights == 0)).all()
        assert np.allclose(drawn.filled(0), weights)
        assert axes.yaxis_inverted()
        alpha = maps.alphas[name][1, 2]
        assert axes.get_title() == f"ours\n{TITLES[name]}\nlayer 1, head 2, α = {alpha:.2f}"
        assert [tick.get_text() for tick in axes.get_xticklabels()] == keys
        assert len(axes.get_yticklabels()) == len(maps.target)
    colours = WEIGHT_COLOURS
    assert tuple(colours.get_bad())[:3] == (1, 1, 1)
    shades = [lightness(colours(weight)[:3]) for weight in np.linspace(0, 1, 50)]
    assert shades[0] < 0.8, "the least weight above 0 hardly differs from empty paper"
    assert shades == sorted(shades, reverse=True)


def test_rows_of_the_decoder_are_the_tokens_that_it_writes():
    maps = sentence()
    figure = head_maps([(maps, (kind, 1, 2), "") for kind in ATTENTION_TYPES])
    expected = (
        (maps.source, "query", "key"),
        (maps.target, "query: the token written", "key: the token read"),
        (maps.target, "query: the token written", "key: the source token"),
    )
    for axes, (tokens, rows, columns) in zip(panels(figure), expected):
        assert [tick.get_text() for tick in axes.get_yticklabels()] == tokens
        assert (axes.get_ylabel(), axes.get_xlabel()) == (rows, columns)
