"""The α log over new, resumed and interrupted runs."""

import copy
import json

import pytest
import torch
from helpers import build

from user_dir.errors import UserError
from user_dir.models import heads
from user_dir.models.heads import AlphaLog

ALPHAS = {
    "encoder_self": [[1.25, 1.5], [1.75, 1.0]],
    "decoder_self": [[1.1]],
}


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def updates(path):
    return [line["update"] for line in lines(path)]


def run(path, start, stop, interval=10):
    log = AlphaLog(str(path), interval)
    for update in range(start, stop + 1):
        for _ in range(2):  # the second report of an update is no news
            log.record(update, ALPHAS)


def test_a_line_every_interval_from_update_zero(tmp_path):
    path = tmp_path / "logs" / "alpha.jsonl"
    run(path, 0, 35)
    assert updates(path) == [0, 10, 20, 30]
    assert lines(path)[0] == {
        "update": 0,
        "encoder_self": [[1.25, 1.5], [1.75, 1.0]],
        "decoder_self": [[1.1]],
    }
    assert path.read_text().endswith("\n")


@pytest.mark.parametrize("resumed_from, kept", [(20, [0, 10, 20]), (25, [0, 10, 20]), (3, [0])])
def test_resuming_drops_what_will_be_written_again(tmp_path, resumed_from, kept):
    path = tmp_path / "alpha.jsonl"
    run(path, 0, 40)
    log = AlphaLog(str(path), 10)
    log.record(resumed_from, ALPHAS)
    assert updates(path) == kept
    run(path, resumed_from, 60)
    assert updates(path) == [0, 10, 20, 30, 40, 50, 60]
    assert list(tmp_path.iterdir()) == [path]


def test_resuming_where_the_last_line_is_partial(tmp_path):
    path = tmp_path / "alpha.jsonl"
    run(path, 0, 20)
    text = path.read_text()
    path.write_text(text + '{"update": 30, "encoder_se')
    run(path, 25, 40)
    assert updates(path) == [0, 10, 20, 30, 40]
    assert path.read_text().startswith(text)


def test_new_training_renames_earlier_files(tmp_path):
    path = tmp_path / "alpha.jsonl"
    run(path, 0, 20)
    first = path.read_text()
    run(path, 0, 10)
    second = path.read_text()
    run(path, 0, 0)
    assert updates(path) == [0]
    assert (tmp_path / "alpha.jsonl.1").read_text() == first
    assert (tmp_path / "alpha.jsonl.2").read_text() == second


def test_an_unwritable_path_is_named(tmp_path):
    (tmp_path / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "kept").touch()
    for path in (tmp_path / "file" / "alpha.jsonl", folder):
        for update in (5, 0):
            with pytest.raises(UserError, match="--alpha-log") as caught:
                run(path, update, update + 10)
            assert str(path) in str(caught.value)
    assert (folder / "kept").exists()


def test_the_model_writes_its_alphas(tmp_path):
    path = tmp_path / "alpha.jsonl"
    model = build(f"--alpha-log {path} --alpha-log-interval 2 --decoder-self-fixed-alpha 1.5")
    model.set_num_updates(0)
    model.state_dict()
    assert not path.exists()  # loading a checkpoint is not training
    model.train()
    seen = {}
    for update in range(5):
        with torch.no_grad():
            model.encoder.layers[1].self_attn.alpha.a.add_(0.1)
        seen[update] = {name: torch.stack(layers).tolist() for name, layers in model.alphas().items()}
        model.after_update(update)
    assert updates(path) == [0, 2, 4]
    for line in lines(path):
        assert list(line) == ["update", "encoder_self", "decoder_self", "decoder_context"]
        for name, layers in seen[line["update"]].items():
            assert line[name] == [pytest.approx(heads, abs=1e-6) for heads in layers]
        assert line["decoder_self"] == [[1.5, 1.5]] * 2
    assert lines(path)[0]["encoder_self"] != lines(path)[1]["encoder_self"]


def test_only_the_first_worker_writes(tmp_path, monkeypatch):
    path = tmp_path / "alpha.jsonl"
    model = build(f"--alpha-log {path} --alpha-log-interval 1")
    model.train()
    monkeypatch.setattr(heads.distributed, "is_initialized", lambda: True)
    for rank in (1, 2, 0):
        monkeypatch.setattr(heads.distributed, "get_rank", lambda rank=rank: rank)
        model.after_update(rank)
        assert path.exists() == (rank == 0)


def test_the_copy_of_a_model_has_no_log(tmp_path):
    """fairseq keeps moving averages in a copy, which is not informed of updates."""
    path = tmp_path / "alpha.jsonl"
    model = build(f"--alpha-log {path} --alpha-log-interval 1")
    model.after_update(0)
    averaged = copy.deepcopy(model)
    averaged.after_update(1)
    assert updates(path) == [0]
    model.after_update(1)
    assert updates(path) == [0, 1]
