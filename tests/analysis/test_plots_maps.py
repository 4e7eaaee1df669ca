"""Attention heat maps: zeros are empty, tokens are shown unchanged."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
from examples import lightness, panels, sentence
from matplotlib.colors import to_hex

from user_dir.analysis import plots
from user_dir.analysis.plots_maps import head_maps, panel, weight_colours
from user_dir.attention_types import ATTENTION_TYPES
from user_dir.errors import UserError


def read(piece: str) -> str:
    """A piece of words of letters as a label."""
    return piece[1:] if piece[0] == "▁" else piece if piece in ("</s>", ".") else f"‑{piece}"


def test_pieces_are_labelled_as_people_read_them():
    pieces = ["▁Der", "▁Hu", "nd", "▁彼", "は", "▁", "$x", ".", "<unk>", "</s>"]
    weights = np.eye(len(pieces))
    figure = head_maps([("title", weights, pieces, pieces)])
    labels = [tick.get_text() for tick in panels(figure)[0].get_yticklabels()]
    assert labels == ["Der", "Hu", "‑nd", "彼", "は", "␣", "$x", ".", "<unk>", "</s>"]
    figure = head_maps([("title", np.eye(2), ["Hu@@", "nd"], ["Hu@@", "nd"])])  # no mark of a start
    assert [tick.get_text() for tick in panels(figure)[0].get_xticklabels()] == ["Hu@@", "nd"]


def test_exact_zeros_are_empty():
    maps = sentence()
    shown = [
        (name, maps.head(name, 1, 2), maps.queries(name), maps.keys(name))
        for name in ("decoder_context", "decoder_self")
    ]
    figure = head_maps(shown)
    for axes, (title, weights, queries, keys) in zip(panels(figure), shown):
        assert not axes.images, "a picture of pixels, which viewers blur"
        drawn = axes.collections[0].get_array()
        assert (np.ma.getmaskarray(drawn) == (weights == 0)).all()
        assert np.allclose(drawn.filled(0), weights)
        assert axes.yaxis_inverted()
        assert axes.get_title() == title
        assert [tick.get_text() for tick in axes.get_xticklabels()] == list(map(read, keys))
        assert len(axes.get_yticklabels()) == len(queries)
    colours = weight_colours()
    assert tuple(colours.get_bad())[:3] == (1, 1, 1)
    shades = [lightness(colours(weight)[:3]) for weight in np.linspace(0, 1, 50)]
    assert shades[0] < 0.8, "the least weight above 0 hardly differs from empty paper"
    assert shades == sorted(shades, reverse=True)


def test_rows_of_the_decoder_are_the_tokens_that_it_writes():
    maps = sentence()
    figure = head_maps([panel(maps, {}, (kind, 1, 2)) for kind in ATTENTION_TYPES])
    expected = (
        (maps.source, "query", "key"),
        (maps.target, "query: the token written", "key: the token read"),
        (maps.target, "query: the token written", "key: the source token"),
    )
    for axes, (tokens, rows, columns) in zip(panels(figure), expected):
        assert [tick.get_text() for tick in axes.get_yticklabels()] == list(map(read, tokens))
        assert (axes.get_ylabel(), axes.get_xlabel()) == (rows, columns)
    ticks = [tick.get_text() for tick in figure.axes[-1].get_yticklabels()]
    assert (ticks[0], ticks[-1]) == ("above 0", "1")


def test_lines_enclose_the_separator():
    keys = ["▁a", "b", "▁[SEP]", "▁c"]
    lines = panels(head_maps([("title", np.eye(4), keys, keys)]))[0].lines
    edges = [(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in lines]
    assert edges == [((2, 2), (0, 1)), ((3, 3), (0, 1)), ((0, 1), (2, 2)), ((0, 1), (3, 3))]
    assert not panels(head_maps([("title", np.eye(2), ["a", "b"], ["c", "d"])]))[0].lines


def test_an_svg_has_a_shape_for_each_weight_and_no_pixels(tmp_path):
    weights = np.array([[0.0, 1.0], [1e-9, 1 - 1e-9]])
    plots.save(head_maps([("title", weights, ["a", "b"], ["c", "d"])]), tmp_path / "maps.svg")
    text = (tmp_path / "maps.svg").read_text(encoding="utf-8")
    assert "<image" not in text
    mesh = re.search(r'<g id="QuadMesh_1">(.*?)</g>', text, re.S).group(1)
    least, most = (to_hex(weight_colours()(value)) for value in (1e-9, 1.0))
    assert re.findall("fill: (#[0-9a-f]{6})", mesh) == ["#ffffff", most, least, most]
    assert least != "#ffffff"


def test_japanese_is_upright():
    figure = head_maps([("title", np.eye(3), ["a", "b", "c"], ["▁彼は", "▁who", "？"])])
    labels = panels(figure)[0].get_xticklabels()
    assert [label.get_text() for label in labels] == ["彼\nは", "who", "？"]
    assert [label.get_rotation() for label in labels] == [0, 90, 0]


@pytest.mark.parametrize("width, columns", [(7.7 / 2.54, 1), (16 / 2.54, 2)])
def test_width_of_a_paper(tmp_path, width, columns):
    """Maps that would be too small side by side are stacked; the saved figure has the requested width."""
    tokens = [f"▁token{number}" for number in range(12)]
    figure = head_maps([(title, np.eye(12), tokens, tokens) for title in "ab"], 2, width)
    assert panels(figure)[0].get_subplotspec().get_gridspec().ncols == columns
    plots.save(figure, tmp_path / "maps.svg")
    written = re.search(r'width="([\d.]+)pt"', (tmp_path / "maps.svg").read_text())
    assert float(written.group(1)) == pytest.approx(72 * width, abs=0.01)


def test_missing_characters_are_reported_once(tmp_path, caplog):
    private = chr(0xE123)  # private use area: in no font
    figure = head_maps([("$x_1", np.eye(2), [private, "$"], ["a_$b$", private])])
    with caplog.at_level(logging.WARNING):
        plots.save(figure, tmp_path / "maps.png")
    assert caplog.text.count("missing from the installed fonts") == 1
    caplog.clear()
    plots.save(figure, tmp_path / "maps.svg")
    assert not caplog.text


def test_maps_that_nobody_could_read_are_refused_before_drawing():
    tokens = [f"▁{i}" for i in range(200)]
    weights = np.full((200, 200), 1 / 200, dtype=np.float32)
    maps = [("a", weights, tokens, tokens)] * 3
    with pytest.raises(UserError, match=r"120,000 cells.*200 tokens"):
        head_maps(maps)
