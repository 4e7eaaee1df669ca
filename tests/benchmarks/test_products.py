"""The benchmark of products: every contender computes the layer, and the table has their ratios."""

import json

import pytest
import torch
from commands import script
from torch import nn

from user_dir.benchmarks.products import (
    OURS,
    OURS_INT8,
    PEERS,
    product_contenders,
    product_table,
    time_products,
)


def test_contenders_compute_the_layer():
    layer, x = nn.Linear(40, 70), torch.randn(6, 40)
    found = product_contenders(layer)
    assert {OURS, OURS_INT8} <= found.keys() <= {OURS_INT8, *PEERS}
    for name, call in found.items():
        torch.testing.assert_close(call(x), layer(x), rtol=0, atol=0.05 if "int8" in name else 1e-5)


def test_rows_and_table():
    rows = [time_products(9, 20, count, rounds=1, seed=1) for count in (3, 4)]
    for row in rows:
        seconds = {name: values["median"] for name, values in row["seconds"].items()}
        assert row["ratios"] == {peer: seconds[PEERS[peer]] / seconds[peer] for peer in row["ratios"]}
    lines = product_table(rows).split("\n")
    assert len(lines) == 4 and "9 → 20" in lines[2]


@pytest.mark.nightly
def test_the_command(tmp_path):
    output = tmp_path / "products.json"
    flags = ["--rounds", "1", "--threads", "1", "--quick", "--output", output]
    done = script("benchmark", "products", *flags, anew=True)
    assert "128 → 384" in done.stdout
    assert {row["rows"] for row in json.loads(output.read_text())["timings"]} == {1, 5, 64}
