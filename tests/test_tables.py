"""Figures as text."""

from __future__ import annotations

import json
import statistics

import pytest
from helpers import cells_of

from user_dir.tables import (
    Column,
    csv_text,
    mean_and_deviation,
    mebibytes,
    seed_list,
    seed_mean,
    significance,
    table,
    table_files,
    write_tables,
)


@pytest.mark.parametrize(
    ("p", "text"),
    [(1.0, "1.000"), (0.0496, "0.050"), (0.0005, "0.001"), (0.00049, "< 0.001"), (1e-4, "< 0.001")],
)
def test_significance_is_never_0(p, text):
    assert significance(p) == text


@pytest.mark.parametrize(
    ("values", "form", "text"),
    [
        ([1.0, 2.0], ".2f", f"1.50 ± {statistics.stdev([1, 2]):.2f}"),
        ([0.5, 1.0], "+.1f", "+0.8 ± 0.4"),
        ([2.0, 2.0], ".2f", "2.00"),
        ([3.0], ".0f", "3"),
        ([1.0, None], ".2f", ""),
    ],
)
def test_the_deviation_is_shown_only_if_values_differ(values, form, text):
    assert mean_and_deviation(values, form) == text


def test_columns_follow_the_labels_of_a_row():
    seeds = [{"bleu": 30.0, "heads": 3}, {"bleu": 31.0, "heads": 0}]
    columns = [
        seed_mean("BLEU", "bleu", ".1f"),
        seed_mean("error", lambda seed: 100 - seed["bleu"], ".1f"),
        seed_list("heads", "heads"),
        Column("first", lambda seeds: str(seeds[0]["bleu"])),
    ]
    rows = cells_of(table(["run", "seeds"], [(["a", 2], seeds), (["b", 1], seeds[:1])], columns))
    assert rows[0] == ["run", "seeds", "BLEU", "error", "heads", "first"]
    assert rows[2:] == [
        ["a", "2", "30.5 ± 0.7", "69.5 ± 0.7", "3, 0", "30.0"],
        ["b", "1", "30.0", "70.0", "3", "30.0"],
    ]


def test_csv_quotes_commas_and_leaves_none_empty():
    assert csv_text([["a, b", None], [1.5, "c"]], ["name", "value"]) == 'name,value\n"a, b",\n1.5,c\n'


def test_bytes_in_mebibytes():
    assert mebibytes(3 * 2**19, ".1f") == "1.5" and mebibytes(None, ".1f") == ""


def test_tables_are_written_with_their_figures_as_json(tmp_path):
    write_tables(tmp_path / "new" / "table.md", "| α |", {"α": 1.5})
    assert (tmp_path / "new" / "table.md").read_text(encoding="utf-8") == "| α |\n"
    assert json.loads((tmp_path / "new" / "table.json").read_text(encoding="utf-8")) == {"α": 1.5}
    assert set((tmp_path / "new").iterdir()) == set(table_files(tmp_path / "new" / "table.md"))
    write_tables(None, "", {})
    assert not table_files(None)
