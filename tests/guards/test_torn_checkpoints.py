"""Saving and loading checkpoints through fairseq where the file system refuses or files are torn."""

import contextlib
import os
import resource

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from helpers import checkpoint_state

from user_dir.checkpoints import load_checkpoint
from user_dir.errors import UserError
from user_dir.guards import torn_checkpoints


@contextlib.contextmanager
def small_files(size: int):
    """No file grows beyond ``size`` bytes: writing is refused in the midst, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch):
    monkeypatch.setattr(torn_checkpoints, "PAUSE", 0)


def state(size: int = 10, optimizer: dict | None = None) -> dict:
    return checkpoint_state(model={"w": torch.ones(size)}, last_optimizer_state=optimizer)


def save(path, *args, **kwargs) -> None:
    checkpoint_utils.torch_persistent_save(state(*args, **kwargs), str(path))


# Refused within the first tensor, between tensors, and only as the last of it leaves the buffer.
@pytest.mark.parametrize("room", [0, 600, 100_000, 401_000])
def test_a_save_that_is_refused_ends_the_run_and_leaves_what_was(tmp_path, caplog, room):
    path = tmp_path / "checkpoint_last.pt"
    save(path)
    before = path.read_bytes()
    with small_files(room), pytest.raises(SystemExit) as ended:
        save(path, 100_000)
    assert not isinstance(ended.value, Exception), "hydra would make a traceback of it"
    assert ended.value.code.startswith(f"error: cannot write {path}: File too large; earlier checkpoints")
    assert len(caplog.records) == 2
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_copy_that_is_refused_ends_the_run_and_leaves_what_was(tmp_path):
    new, last = tmp_path / "checkpoint2.pt", tmp_path / "checkpoint_last.pt"
    save(last)
    before = last.read_bytes()
    save(new, 100_000)
    with small_files(100_000), pytest.raises(SystemExit, match="File too large"):
        PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == before
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == new.read_bytes()
    assert sorted(tmp_path.iterdir()) == [new, last]


def test_a_refusal_that_passes_is_outlasted(tmp_path, monkeypatch):
    refusals = iter([UserError("cannot write"), UserError("cannot write")])

    def save_checkpoint(state, path, save=torn_checkpoints.save_checkpoint):
        for refusal in refusals:
            raise refusal
        save(state, path)

    monkeypatch.setattr(torn_checkpoints, "save_checkpoint", save_checkpoint)
    save(tmp_path / "checkpoint1.pt")
    assert load_checkpoint(tmp_path / "checkpoint1.pt")


def test_an_interrupt_while_torch_writes_is_no_refusal(tmp_path, monkeypatch):
    def interrupted(state, file):
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("unexpected pos")  # as torch does when it closes what is not whole

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "checkpoint1.pt")
    assert not list(tmp_path.iterdir())


def resume(path) -> str:
    with pytest.raises(SystemExit) as ended:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    return ended.value.code


def test_a_broken_checkpoint_is_named_with_the_way_on(tmp_path):
    last, old, new = (tmp_path / f"checkpoint{name}.pt" for name in ("_last", "1", "2"))
    save(last)
    last.write_bytes(last.read_bytes()[:-100])
    broken = f"error: {last} is not a checkpoint, or is cut short"
    none = "no other checkpoint in its folder is complete: remove it to train from scratch"
    assert resume(last) == f"{broken}; {none}"

    save(old, optimizer={"step": 1})
    save(new, optimizer={"step": 2})
    (tmp_path / "checkpoint3.pt").write_bytes(b"PK cut")
    save(tmp_path / "checkpoint_average.pt")  # without an optimizer's state: none to train on from
    for i, path in enumerate((old, new, tmp_path / "checkpoint3.pt", tmp_path / "checkpoint_average.pt")):
        os.utime(path, (i, i))
    advice = f"copy {new}, the latest complete checkpoint, over it and run the same command again"
    assert resume(last) == f"{broken}; {advice}"
    last.rename(tmp_path / "checkpoint_best.pt")
    assert resume(tmp_path / "checkpoint_best.pt").endswith("or is cut short")


def test_a_missing_checkpoint_gets_no_advice(tmp_path):
    with pytest.raises(FileNotFoundError):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "none.pt"))
