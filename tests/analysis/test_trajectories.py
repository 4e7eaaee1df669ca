"""α over training: reading a log, its rows, and refusals."""

from __future__ import annotations

import json
import re

import pytest
from examples import alpha_lines, write_alpha_log

from user_dir.analysis.results import alpha_table
from user_dir.analysis.trajectories import read_trajectories
from user_dir.attention.types import ATTENTION_TYPES
from user_dir.errors import UserError


def test_alphas_and_rows_equal_the_log(tmp_path):
    log = write_alpha_log(tmp_path / "alpha.jsonl")
    lines = {line["update"]: line for line in map(json.loads, log.read_text().splitlines())}
    trajectories = read_trajectories(log)
    assert trajectories.updates == [0, 100, 200, 300, 400]
    for name in ATTENTION_TYPES:
        assert trajectories.alphas[name].tolist() == [line[name] for line in lines.values()]


def test_table_shows_the_last_values(tmp_path):
    log = write_alpha_log(tmp_path / "alpha.jsonl", layers=2, heads=3)
    last = json.loads(log.read_text().splitlines()[-1])
    table = alpha_table(read_trajectories(log))
    assert "alpha at update 400" in table
    block = table.split("decoder_self")[1].split("decoder_context")[0]
    for layer, alphas in enumerate(last["decoder_self"]):
        line = re.search(rf"layer {layer}(.*)", block).group(1)
        assert [float(word) for word in line.split()] == [round(alpha, 3) for alpha in alphas]


def test_a_truncated_last_line_is_skipped(tmp_path):
    lines = alpha_lines()
    log = tmp_path / "alpha.jsonl"
    log.write_text("\n".join(lines)[:-9], encoding="utf-8")
    assert read_trajectories(log).updates == [0, 100, 200, 300]
    log.write_text("\n".join(lines), encoding="utf-8")  # complete except for the newline
    assert len(read_trajectories(log).updates) == 5


@pytest.mark.parametrize(
    "line", ['{"update": 100', "[1]", '{"encoder_self": [[1.5]]}', '{"update": 1, "encoder_self": [["a"]]}']
)
def test_an_invalid_line_is_named(tmp_path, line):
    lines = alpha_lines()
    (tmp_path / "alpha.jsonl").write_text("\n".join([lines[0], line, *lines[2:]]) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"alpha\.jsonl, line 2 is not a line"):
        read_trajectories(tmp_path / "alpha.jsonl")
