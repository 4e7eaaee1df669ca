"""α over training from logs and checkpoints: reading, writing and refusals."""

from __future__ import annotations

import json
import logging
import re
from argparse import Namespace

import numpy as np
import pytest
from examples import alpha_lines, write_alpha_log
from helpers import SMALL, SMALL_LM, build, build_language_model, parse

from user_dir.analysis.results import alpha_table
from user_dir.analysis.trajectories import read_trajectories, to_json, to_rows
from user_dir.attention.types import ATTENTION_TYPES
from user_dir.checkpoints import save_checkpoint
from user_dir.errors import UserError


def write_checkpoint(path, flags="", update=7, seed=1, arch="adaptively_sparse_transformer"):
    """Write a checkpoint of a small model as fairseq does; returns the model."""
    model = build(flags, arch, seed)
    settings = parse(f"{SMALL} {flags}", arch)
    settings._name = arch
    cfg = {"model": settings, "task": Namespace(source_lang="de", target_lang="en")}
    state = {"model": model.state_dict(), "cfg": cfg, "optimizer_history": [{"num_updates": update}]}
    save_checkpoint(state, path)
    return model


def test_alphas_json_and_csv_equal_the_log(tmp_path):
    log = write_alpha_log(tmp_path / "alpha.jsonl")
    lines = {line["update"]: line for line in map(json.loads, log.read_text().splitlines())}
    trajectories = read_trajectories(log)
    assert trajectories.updates == [0, 100, 200, 300, 400]
    for name in ATTENTION_TYPES:
        assert trajectories.alphas[name].tolist() == [line[name] for line in lines.values()]
    report = json.loads(to_json(trajectories, "alpha.jsonl"))
    assert report["source"] == "alpha.jsonl"
    assert len(report["heads"]) == 18
    for head in report["heads"]:
        for update, alpha in zip(report["updates"], head["alpha"]):
            assert alpha == lines[update][head["attention"]][head["layer"]][head["head"]]
    _, *rows = to_rows(trajectories)
    assert len(rows) == 5 * 18
    assert all(lines[update][kind][layer][head] == alpha for update, kind, layer, head, alpha in rows)


def test_table_shows_the_last_values(tmp_path):
    log = write_alpha_log(tmp_path / "alpha.jsonl", layers=2, heads=3)
    last = json.loads(log.read_text().splitlines()[-1])
    table = alpha_table(read_trajectories(log))
    assert "alpha at update 400" in table
    block = table.split("decoder_self")[1].split("decoder_context")[0]
    for layer, alphas in enumerate(last["decoder_self"]):
        line = re.search(rf"layer {layer}(.*)", block).group(1)
        assert [float(word) for word in line.split()] == [round(alpha, 3) for alpha in alphas]


def test_a_truncated_last_line_is_skipped_with_a_warning(tmp_path, caplog):
    lines = alpha_lines()
    log = tmp_path / "alpha.jsonl"
    log.write_text("\n".join(lines)[:-9], encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert read_trajectories(log).updates == [0, 100, 200, 300]
    assert f"{log}, line 5 is truncated" in caplog.text
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


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--alpha-tying layer",
        "--alpha-tying model",
        "--alpha-lr-multiplier 3 --alpha-max 2.5",
        "--attention-normalizer softmax",
        "--fixed-alpha 1.7",
        "--alpha-schedule linear --alpha-schedule-updates 10 --alpha-schedule-then learned",
        "--decoder-context-attention-normalizer sparsemax",
        "--no-cross-attention",
    ],
)
def test_a_checkpoint_has_the_alphas_of_its_model(tmp_path, flags):
    model = write_checkpoint(tmp_path / "checkpoint.pt", flags, update=7)
    model.set_num_updates(7)
    trajectories = read_trajectories(tmp_path / "checkpoint.pt")
    assert trajectories.updates == [7]
    expected = model.alpha_values()
    assert list(trajectories.alphas) == list(expected)
    for name, alphas in trajectories.final().items():
        assert np.allclose(alphas, expected[name], rtol=0, atol=1e-6), name


def test_a_language_model_has_alphas(tmp_path):
    arch = "adaptively_sparse_transformer_lm"
    model, settings = build_language_model(), parse(SMALL_LM, arch)
    settings._name = arch
    state = {"model": model.state_dict(), "cfg": {"model": settings, "task": Namespace(data="x")}}
    save_checkpoint({**state, "optimizer_history": [{"num_updates": 7}]}, tmp_path / "checkpoint.pt")
    found, expected = read_trajectories(tmp_path / "checkpoint.pt").final(), model.alpha_values()
    assert list(found) == list(expected) == ["decoder_self"]
    assert np.allclose(found["decoder_self"], expected["decoder_self"], rtol=0, atol=1e-6)


def test_a_folder_is_ordered_by_update(tmp_path):
    models = {}
    for name, update in (("checkpoint2", 20), ("checkpoint10", 100), ("checkpoint_1_5", 5)):
        models[update] = write_checkpoint(tmp_path / f"{name}.pt", update=update, seed=update)
    (tmp_path / "checkpoint_last.pt").write_bytes((tmp_path / "checkpoint10.pt").read_bytes())
    (tmp_path / "average.pt").write_bytes(b"not asked for")
    trajectories = read_trajectories(tmp_path)
    assert trajectories.updates == [5, 20, 100]
    for index, update in enumerate(trajectories.updates):
        for name, alphas in models[update].alpha_values().items():
            assert np.allclose(trajectories.alphas[name][index], alphas, atol=1e-6)


def test_checkpoints_and_folders_without_alphas_are_named(tmp_path):
    write_checkpoint(tmp_path / "checkpoint1.pt", arch="transformer")
    with pytest.raises(UserError, match=r"checkpoint1\.pt has no α: it is of a transformer"):
        read_trajectories(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty has no checkpoints"):
        read_trajectories(tmp_path / "empty")
