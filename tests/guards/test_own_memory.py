"""What is read from a checkpoint has memory of its own, and no more than the file has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from helpers import checkpoint_state

from user_dir.checkpoints import load_checkpoint
from user_dir.errors import UserError
from user_dir.guards.checkpoint_files import Unreadable, read_checkpoint
from user_dir.guards.plain_data import plain_state
from user_dir.io import unchanged

ROOT = Path(__file__).resolve().parents[2]
READERS = {
    "read_checkpoint": read_checkpoint,
    "load_checkpoint": lambda path: load_checkpoint(path, optimizer=True),
    "fairseq": lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path)),
}
HARMS = {
    "overwritten": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "cut short": lambda path: os.truncate(path, 0),
    "removed": Path.unlink,
}


def state(value: float = 1.0) -> dict:
    weights = torch.arange(20_000.0) * value
    model = {"w": weights[:5000].view(50, 100).t(), "tied": weights, "n": torch.tensor(3), "e": weights[:0]}
    extra = {"train_iterator": {"epoch": 1}, "ema": {"w": weights + 1}}
    optimizer = {"state": {0: {"exp_avg": weights.half(), "step": 3}}}
    return checkpoint_state(model=model, extra_state=extra, last_optimizer_state=optimizer)


def mapped(path: Path) -> bool:
    """Whether this process has a map of the file, according to the system."""
    return str(path) in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("harm", HARMS)
def test_what_happens_to_the_file_later_changes_nothing(tmp_path, reader, harm, zipped):
    path = tmp_path / "some.pt"
    torch.save(state(), path, _use_new_zipfile_serialization=zipped)
    control = torch.load(path, mmap=zipped, weights_only=False)
    assert mapped(path) == zipped
    del control
    found = READERS[reader](path)
    assert not mapped(path)
    HARMS[harm](path)
    expected = state()
    torch.testing.assert_close(found["model"], expected["model"], rtol=0, atol=0)
    torch.testing.assert_close(found["extra_state"]["ema"], expected["extra_state"]["ema"], rtol=0, atol=0)
    moments = found["last_optimizer_state"]["state"][0]["exp_avg"]
    assert torch.equal(moments, expected["last_optimizer_state"]["state"][0]["exp_avg"])
    found["model"]["tied"][1] = 7.0  # parameters that shared memory still do
    assert found["model"]["w"][1, 0] == 7.0 and found["model"]["w"].stride() == (1, 100)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")
def test_the_file_and_its_copy_are_not_in_memory_at_once(tmp_path):
    """The copy is; of the map, which would be as large, there is a tensor at a time."""
    path, size = tmp_path / "large.pt", 8 << 20
    torch.save({**state(), "many": [torch.ones(size // 4) for _ in range(10)]}, path)
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from user_dir.guards.checkpoint_files import read_checkpoint
peak = lambda: int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) << 10
before, found = peak(), read_checkpoint({str(path)!r})
assert all(bool((each == 1).all()) for each in found["many"])
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert 10 * size < int(done.stdout) < 14 * size, done.stderr


def test_storages_that_overlap_are_not_copied_again_and_again(tmp_path):
    """As many bytes as the file has may be copied; a forged file could have asked for half their square."""
    path = tmp_path / "forged.pt"
    torch.save({**state(), "many": [torch.ones(500) for _ in range(200)]}, path)
    size = path.stat().st_size
    whole = torch.zeros(size // 2, dtype=torch.uint8).untyped_storage()
    views = [torch.empty(0, dtype=torch.uint8).set_(whole[i:]) for i in range(3)]
    with pytest.raises(UserError, match="claim more numbers than the file contains"):
        plain_state({"many": views}, "forged.pt", size, mapped=True)
    assert len(read_checkpoint(path)["many"]) == 200
    # The same views are no copies where nothing is mapped.
    assert len(plain_state({"many": views}, "forged.pt", size)["many"]) == 3


def test_without_the_optimizer_its_state_is_checked_and_not_kept(tmp_path):
    path = tmp_path / "some.pt"
    torch.save(state(), path)
    assert "last_optimizer_state" not in read_checkpoint(path, leave_out=["last_optimizer_state"])
    assert load_checkpoint(path)["last_optimizer_state"] is None
    torch.save({**state(), "last_optimizer_state": {"state": {1, 2}}}, path)
    with pytest.raises(UserError, match="last_optimizer_state"):
        load_checkpoint(path)


@pytest.mark.parametrize("times", [1, 2, 9])
def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path, monkeypatch, times):
    path, load, left = tmp_path / "some.pt", torch.load, iter(range(times))
    torch.save(state(1.0), path)

    def load_and_change(*args, **kwargs):
        loaded = load(*args, **kwargs)
        if next(left, None) is not None:
            torch.save(state(2.0), tmp_path / "new.pt")
            (tmp_path / "new.pt").replace(path)
        return loaded

    monkeypatch.setattr(torch, "load", load_and_change)
    if times == 9:
        with pytest.raises(Unreadable, match=r"some\.pt changes while it is read"):
            read_checkpoint(path)
    else:
        assert read_checkpoint(path)["model"]["tied"][1] == 2.0


def test_a_file_read_twice_must_be_the_same(tmp_path):
    path = tmp_path / "some.pt"
    path.write_text("a")
    with unchanged(path):
        path.read_text()
    with pytest.raises(UserError, match=r"some\.pt was changed"), unchanged(path):
        path.write_text("bb")
