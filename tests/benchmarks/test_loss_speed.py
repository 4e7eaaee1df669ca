"""The benchmark of losses: every contender computes what its name says, and the table has its ratios."""

import json

import pytest
import torch
from commands import script

from user_dir.benchmarks.loss_speed import CROSS_ENTROPY, PEER, loss_contenders, loss_tables, time_losses

CPU = torch.device("cpu")


def test_contenders_of_one_alpha_agree():
    scores, target = torch.randn(4, 30), torch.randint(30, (4,))
    by_alpha = {}
    for each in loss_contenders():
        by_alpha.setdefault(each.alpha, []).append(each.function(scores, target))
    assert [len(by_alpha[alpha]) for alpha in (1.0, 1.5, 2.0)] == [1, 2, 2]
    for losses in by_alpha.values():
        for each in losses:
            assert each.shape == (4,)
            torch.testing.assert_close(each, losses[0], rtol=1e-4, atol=1e-5)


def test_rows_and_tables():
    rows = time_losses(loss_contenders(), 50, 1, rounds=2, seed=1, device=CPU, rows=8)
    by_name = {(row["implementation"], row["alpha"]): row for row in rows}
    assert len(by_name) == len(loss_contenders())
    assert by_name[CROSS_ENTROPY, 1.0]["to_cross_entropy"] == 1
    assert by_name[PEER, 1.5]["to_peer"] == 1
    assert all(row["peak_bytes"] >= 4 * 8 * 50 for row in rows)
    text = loss_tables(rows)
    assert "8 rows of 50 scores from N(0, 1)" in text
    assert len(text.split("\n")) == 4 + len(rows)


@pytest.mark.nightly
def test_the_command(tmp_path):
    output = tmp_path / "loss.json"
    flags = ["--symbols", "60", "--rounds", "1", "--threads", "1", "--cpu", "--output", output]
    done = script("benchmark", "loss", *flags)
    assert done.stdout.count("512 rows of 60 scores from N(0, ") == 2
    assert len(json.loads(output.read_text())["timings"]) == 2 * len(loss_contenders())
