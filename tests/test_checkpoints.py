"""Loading, averaging and converting checkpoints, without fairseq's commands."""

from __future__ import annotations

import argparse
import errno
import math
import os

import numpy as np
import pytest
import torch
from helpers import checkpoint_state, parse

from user_dir.checkpoint_settings import averaged_updates, num_updates
from user_dir.checkpoints import (
    average_checkpoints,
    for_inference,
    last_checkpoints,
    last_epoch_checkpoints,
    load_checkpoint,
    whole_checkpoints,
)
from user_dir.checkpoints import save_checkpoint as save
from user_dir.errors import UserError
from user_dir.models.from_settings import from_stock


def state(value: float = 1.0, **more) -> dict:
    return checkpoint_state(model={"w": torch.full((2,), value), "n": torch.tensor(3)}, **more)


def test_scalars_of_numpy_1_and_2_load(tmp_path):
    """``--eval-bleu`` stores them; numpy 1 and 2 use different names for rebuilding them."""
    save(state(best=np.float64(1.5), counts=np.array([1, 2])), tmp_path / "new.pt")
    loaded = load_checkpoint(tmp_path / "new.pt")
    assert loaded["best"] == 1.5
    assert loaded["counts"].tolist() == [1, 2]
    written = (tmp_path / "new.pt").read_bytes()
    core, other = (
        (b"numpy._core", b"numpy.core") if b"numpy._core" in written else (b"numpy.core", b"numpy._core")
    )
    torch.save(state(best=np.float64(2.5)), tmp_path / "plain.pt", _use_new_zipfile_serialization=False)
    text = (tmp_path / "plain.pt").read_bytes()
    assert core + b".multiarray" in text
    # In this older format the pickle is not compressed, so the name can be replaced.
    (tmp_path / "other.pt").write_bytes(text.replace(core + b".multiarray", other + b".multiarray"))
    assert load_checkpoint(tmp_path / "other.pt")["best"] == 2.5


def test_checkpoint_from_before_cfg_converts_to_one_that_fairseq_reads(tmp_path):
    args = parse("--arch transformer --encoder-embed-dim 16 --encoder-attention-heads 2")
    torch.save({"args": args, "model": {}}, tmp_path / "old.pt")
    converted = from_stock(load_checkpoint(tmp_path / "old.pt"), 1.0)
    save(converted, tmp_path / "new.pt")
    again = load_checkpoint(tmp_path / "new.pt")
    assert again["args"] is None
    assert again["cfg"]["model"].arch == "adaptively_sparse_transformer"
    assert again["cfg"]["model"].encoder_embed_dim == 16
    assert not again["cfg"]["model"].encoder_normalize_before


@pytest.mark.parametrize("alpha", [0.5, float("nan"), float("inf")])
def test_alpha_of_a_conversion_is_validated(alpha):
    with pytest.raises(UserError, match="--alpha must be at least 1"):
        from_stock(state(), alpha)


def test_only_the_stock_transformer_converts():
    other = state()
    other["cfg"]["model"]["_name"] = "lstm"
    with pytest.raises(UserError, match="lstm"):
        from_stock(other, 1.0)


def test_average(tmp_path):
    for i, value in enumerate((1.0, 2.0, 6.0)):
        save(state(value, last_optimizer_state={"step": i}), tmp_path / f"checkpoint{i + 1}.pt")
    average = average_checkpoints(last_epoch_checkpoints(tmp_path, 3))
    assert average["model"]["w"].tolist() == [3.0, 3.0]
    assert average["model"]["w"].dtype == torch.float32
    assert average["model"]["n"] == 3
    assert average["last_optimizer_state"] is None


def test_an_average_names_its_updates(tmp_path):
    paths = [tmp_path / f"{updates}.pt" for updates in (7, 9)]
    for path in paths:
        save(state(optimizer_history=[{"num_updates": int(path.stem)}]), path)
    average = average_checkpoints(paths)
    assert averaged_updates(average) == averaged_updates(for_inference(average)) == [7, 9]
    assert num_updates(average) == 9
    for alone in (average_checkpoints(paths[:1]), state(averaged="x"), state(averaged=["x"])):
        assert averaged_updates(alone) is None


def test_an_average_of_models_with_other_settings_says_so(tmp_path, caplog):
    paths = [tmp_path / f"{i}.pt" for i in range(3)]
    for path, alpha in zip(paths, (1.5, 1.5, 2.0), strict=True):
        written = checkpoint_state({"fixed_alpha": alpha, "save_dir": path.stem})
        written["cfg"]["checkpoint"] = {"save_dir": path.stem}  # no setting of the model
        save(written, path)
    average_checkpoints(paths[:2])
    assert not caplog.records
    average_checkpoints(paths)
    (record,) = caplog.records
    assert all(word in record.getMessage() for word in ("2.pt", "fixed_alpha", "1.5", "2.0"))


def test_the_last_update_is_among_the_last_checkpoints(tmp_path):
    def save_at(updates: int, name: str) -> None:
        save(state(optimizer_history=[{"num_updates": updates}]), tmp_path / name)

    epochs = [f"checkpoint{epoch}.pt" for epoch in (1, 2, 3)]
    for number, name in enumerate(epochs, start=1):
        save_at(100 * number, name)

    def found(count: int) -> list[str]:
        return [path.name for path in last_checkpoints(tmp_path, count)]

    assert found(2) == epochs[1:]
    save_at(300, "checkpoint_last.pt")  # training ended with the epoch
    assert found(2) == epochs[1:]
    save_at(350, "checkpoint_last.pt")
    assert found(2) == [epochs[2], "checkpoint_last.pt"] and found(1) == ["checkpoint_last.pt"]


def test_moving_averages_are_used_on_request(tmp_path):
    for i, value in enumerate((1.0, 2.0)):
        moving = {"w": torch.full((2,), 10 * value), "n": torch.tensor(4)}
        save(state(value, extra_state={"ema": moving, "epoch": i}), tmp_path / f"{i}.pt")
    paths = [tmp_path / "0.pt", tmp_path / "1.pt"]
    for ema, value, count in ((True, 15.0, 4), (False, 1.5, 3)):
        average = average_checkpoints(paths, ema)
        assert average["model"]["w"].tolist() == [value] * 2
        assert average["model"]["n"] == count
        assert average["extra_state"] == {"epoch": 1}, "an average that is no longer of these parameters"
    save(state(), tmp_path / "plain.pt")
    with pytest.raises(UserError, match=r"plain\.pt .*--store-ema"):
        average_checkpoints([paths[0], tmp_path / "plain.pt"], ema=True)


@pytest.mark.parametrize(
    "moving",
    [
        {"w": torch.tensor([math.nan, 1.0]), "n": torch.tensor(4)},
        {"w": torch.ones(2)},
        {"w": torch.ones(3), "n": torch.tensor(4)},
        {"w": torch.tensor([1, 2]), "n": torch.tensor(4)},
        {"w": [1.0, 2.0], "n": 4},
        [1.0],
    ],
)
def test_moving_averages_that_are_not_of_the_parameters_are_refused(tmp_path, moving):
    save(state(extra_state={"ema": moving}), tmp_path / "one.pt")
    with pytest.raises(UserError, match=r"moving average in .*one\.pt"):
        average_checkpoints([tmp_path / "one.pt"], ema=True)


def test_last_epochs_are_by_number_not_by_name(tmp_path):
    for epoch in (2, 9, 10, 11):
        (tmp_path / f"checkpoint{epoch}.pt").touch()
    (tmp_path / "checkpoint_best.pt").touch()
    assert [path.name for path in last_epoch_checkpoints(tmp_path, 3)] == [
        f"checkpoint{epoch}.pt" for epoch in (9, 10, 11)
    ]
    with pytest.raises(UserError, match="has 4 epoch checkpoints"):
        last_epoch_checkpoints(tmp_path, 5)
    with pytest.raises(UserError, match="must be positive"):
        last_epoch_checkpoints(tmp_path, -1)
    with pytest.raises(UserError, match="no checkpoint folder"):
        last_epoch_checkpoints(tmp_path / "none", 1)
    (tmp_path / "new").mkdir()
    with pytest.raises(UserError, match="--path"):
        last_epoch_checkpoints(tmp_path / "new", 1)


def test_failed_saving_leaves_no_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot"):
        save(state(), tmp_path / "file" / "checkpoint.pt")
    (tmp_path / "taken.pt").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*taken\.pt"):
        save(state(), tmp_path / "taken.pt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken.pt"]


def test_namespaces_are_plain_data(tmp_path):
    torch.save(state(args=argparse.Namespace(lr=[0.1])), tmp_path / "file.pt")
    assert load_checkpoint(tmp_path / "file.pt")["args"].lr == [0.1]


def test_corrupt_checkpoints_are_passed_over_but_unreadable_ones_are_not(tmp_path, monkeypatch):
    names = ("corrupt.pt", "locked.pt", "whole.pt")
    for name in names:
        save(state(), tmp_path / name)
    (tmp_path / "corrupt.pt").write_bytes((tmp_path / "corrupt.pt").read_bytes()[:500])
    paths = [tmp_path / name for name in names]
    for time, path in enumerate(paths, 1):
        os.utime(path, (time, time))
    assert [path.name for path, _ in whole_checkpoints(paths)] == ["whole.pt", "locked.pt"]
    load = torch.load

    def locked(file, *args, **kwargs):
        if "locked" in file:
            raise PermissionError(errno.EACCES, "Permission denied")
        return load(file, *args, **kwargs)

    monkeypatch.setattr(torch, "load", locked)
    found = whole_checkpoints(paths)
    assert next(found)[0].name == "whole.pt"
    with pytest.raises(UserError, match=r"locked\.pt cannot be read: Permission denied"):
        next(found)
