"""Heat maps of attention: zeros stay empty, tokens are as they are."""

from __future__ import annotations

import logging

import numpy as np
from examples import lightness, panels, sentence

from user_dir.analysis import plots
from user_dir.analysis.plots_maps import head_maps, weight_colours


def test_head_maps_leave_exact_zeros_empty():
    maps = sentence()
    shown = [
        (name, maps.head(name, 1, 2), maps.queries(name), maps.keys(name))
        for name in ("decoder_context", "decoder_self")
    ]
    figure = head_maps(shown)
    for axes, (title, weights, queries, keys) in zip(panels(figure), shown):
        drawn = axes.images[0].get_array()
        assert (np.ma.getmaskarray(drawn) == (weights == 0)).all()
        assert np.allclose(drawn.filled(0), weights)
        assert axes.get_title() == title
        assert [tick.get_text() for tick in axes.get_xticklabels()] == [key.replace("▁", "_") for key in keys]
        assert len(axes.get_yticklabels()) == len(queries)
    colours = weight_colours()
    assert tuple(colours.get_bad())[:3] == (1, 1, 1)
    shades = [lightness(colours(weight)[:3]) for weight in np.linspace(0, 1, 50)]
    assert shades[0] < 0.8, "the least weight above 0 hardly differs from empty paper"
    assert shades == sorted(shades, reverse=True)


def test_characters_that_no_font_has_are_told_of_once(tmp_path, caplog):
    private = chr(0xE123)  # of the private use area: no font has it
    figure = head_maps([("$x_1", np.eye(2), [private, "$"], ["a_$b$", private])])
    with caplog.at_level(logging.WARNING):
        plots.save(figure, tmp_path / "maps.png")
    assert caplog.text.count("in no installed font") == 1
    caplog.clear()
    plots.save(figure, tmp_path / "maps.svg")
    assert not caplog.text
