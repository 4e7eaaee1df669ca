"""Rows of heads: grouping, summary and tables."""

from __future__ import annotations

import pytest

from user_dir.analysis.head_tables import alpha_and_density, by_attention, by_layer, head_name, head_table

ROWS = [
    {"attention": kind, "layer": layer, "head": head, "alpha": 1 + layer / 2 + head / 4, "density": density}
    for kind, density in (("encoder_self", 1.0), ("decoder_context", 0.25))
    for layer in range(2)
    for head in range(2)
]


def test_rows_are_grouped_in_their_order():
    groups = by_attention(ROWS[::-1])
    assert list(groups) == ["decoder_context", "encoder_self"] and groups["encoder_self"] == ROWS[3::-1]
    assert by_layer(groups["encoder_self"], "alpha") == {1: [1.75, 1.5], 0: [1.25, 1.0]}
    assert by_attention([]) == by_layer([], "alpha") == {}


def test_means_of_heads():
    found = alpha_and_density(ROWS[:3])
    assert found == {"alpha_mean": 1.25, "alpha_min": 1.0, "alpha_max": 1.5, "density_mean": 1.0}
    assert alpha_and_density(ROWS)["density_mean"] == pytest.approx(0.625)


def test_the_table_has_a_line_per_layer_and_a_column_per_head():
    assert head_table(ROWS).split("\n") == [
        "encoder_self: mean alpha 1.375, mean density 1.000",
        "  alpha     head 0   head 1     density   head 0   head 1 ",
        "  layer 0     1.000    1.250    layer 0     1.000    1.000",
        "  layer 1     1.500    1.750    layer 1     1.000    1.000",
        "",
        "decoder_context: mean alpha 1.375, mean density 0.250",
        "  alpha     head 0   head 1     density   head 0   head 1 ",
        "  layer 0     1.000    1.250    layer 0     0.250    0.250",
        "  layer 1     1.500    1.750    layer 1     0.250    0.250",
        "",
    ]
    assert head_name(ROWS[-1]) == "decoder_context layer 1 head 1"
