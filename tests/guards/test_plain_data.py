"""Whatever a checkpoint holds is rebuilt as plain data of a sensible size or refused; see also fuzz/."""

import copy
import pickle
import sys
import tracemalloc
from argparse import Namespace
from collections import OrderedDict

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from helpers import checkpoint_state, translation_task

from user_dir.bounded import MAX_CHARACTERS
from user_dir.errors import UserError
from user_dir.guards.checkpoint_files import read_checkpoint, require_finite
from user_dir.guards.plain_data import MAX_KEY, plain_state


def reread(folder, **parts):
    """A checkpoint with these parts, as it is read."""
    torch.save(checkpoint_state(**parts), folder / "a.pt")
    return read_checkpoint(folder / "a.pt")


def test_honest_plain_data_is_read_as_it_was_written(tmp_path):
    written = checkpoint_state({"encoder_layers": 1, "nested": {"list": [{"inner": (1, None, 0.5)}]}})
    written["last_optimizer_state"] = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 1}]}
    assert str(reread(tmp_path, **written)) == str(written)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_parameters_of_every_floating_type_views_and_ties_are_read(tmp_path, dtype):
    whole = torch.arange(12, dtype=dtype).view(3, 4)
    model = {"whole": whole, "row": whole[1], "column": whole.t(), "tied": whole, "counter": torch.tensor(3)}
    read = reread(tmp_path, model=model)["model"]
    for name, value in model.items():
        assert torch.equal(read[name], value) and read[name].dtype == value.dtype
    require_finite(read, "a.pt")


class WithAttributes(OrderedDict):
    """Pickles as an OrderedDict whose attributes say otherwise than its items."""

    def __reduce__(self):
        return OrderedDict, (), vars(self), None, iter(self.items())


def test_attributes_of_a_checkpoint_never_reach_eval(tmp_path):
    """The settings of an honest model as items, and as attributes one whose settings fairseq evaluates."""
    marker, path = tmp_path / "marker", str(tmp_path / "evil.pt")
    hostile = checkpoint_state()
    hostile["cfg"]["model"] = made = WithAttributes(hostile["cfg"]["model"])
    made._name, made.encoder_layers = "fconv", f"[open({str(marker)!r}, 'w') and (8, 3)][:0] or [(8, 3)]"
    hostile["cfg"]["task"] = {"_name": "translation", "data": ".", "source_lang": "de", "target_lang": "en"}
    torch.save(hostile, path)
    believed = torch.load(path, weights_only=True)["cfg"]["model"]
    assert believed._name == "fconv", "torch does not restore them any more"
    with pytest.raises(SystemExit, match="has attributes beside its items"):
        checkpoint_utils.load_model_ensemble([path], task=translation_task())
    assert not marker.exists()


def test_attributes_of_a_tensor_are_left_behind(tmp_path):
    tensor = torch.ones(2)
    tensor.optimizer = "evil"
    read = reread(tmp_path, model={"w": tensor})["model"]["w"]
    assert torch.load(tmp_path / "a.pt", weights_only=True)["model"]["w"].optimizer == "evil"
    assert not vars(read)


def nested(levels: int):
    made = 1
    for _ in range(levels):
        made = [made]
    return made


def laughs() -> list:
    """Ten lists of ten of the same list of ten … : 10⁹ values in a file of some kilobytes."""
    made = ["ha"] * 10
    for _ in range(8):
        made = [made] * 10
    return made


@pytest.mark.parametrize(
    ("part", "make", "reason"),
    [
        ("cfg", laughs, "more values than any real checkpoint"),
        # Counting ten million values takes seconds.
        pytest.param("extra_state", laughs, "more values than any", marks=pytest.mark.nightly),
        ("extra_state", lambda: nested(60), "nested more than 50 levels deep"),
        ("extra_state", lambda: nested(5000), "nested more than 50|not a checkpoint"),
        ("cfg", lambda: 2**64, "is a number of more than 64 bits"),
        ("cfg", lambda: {b"1": 1}, "has a name that is a bytes"),
    ],
)
def test_only_values_of_a_sensible_size_are_read(tmp_path, monkeypatch, part, make, reason):
    hostile = checkpoint_state()
    hostile[part]["strange"] = make()
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(100_000)
        torch.save(hostile, tmp_path / "evil.pt")
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(UserError, match=rf"evil\.pt is .*({reason})"):
        read_checkpoint(tmp_path / "evil.pt")


@pytest.mark.parametrize("value", [torch.ones(1), np.ones(1), np.float64(1)])
@pytest.mark.parametrize("place", ["cfg", "args"])
def test_settings_hold_no_tensors(tmp_path, place, value):
    hostile = {"cfg": None, "args": Namespace(arch="transformer", strange=value)}
    if place == "cfg":
        hostile = checkpoint_state({"strange": value})
    with pytest.raises(UserError, match=r"its \w+\.[\w.]*strange is a \w+, which is not plain data"):
        reread(tmp_path, **hostile)


def test_a_claim_on_memory_that_the_file_does_not_back_takes_none(tmp_path):
    """The old format says how large each tensor is before its numbers come."""
    torch.save(checkpoint_state(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "old.pt").read_bytes()
    claim = pickle.dumps(2, protocol=2)[2:-1]  # K\x02, the number of elements
    where = content.index(b"cpu") + len(b"cpu")
    where = content.index(claim, where)
    huge = pickle.dumps(1 << 38, protocol=2)[2:-1]
    (tmp_path / "old.pt").write_bytes(content[:where] + huge + content[where + len(claim) :])
    with pytest.raises(UserError, match=r"old\.pt is (not a checkpoint|refused)"):
        read_checkpoint(tmp_path / "old.pt")


def below(key: str, levels: int) -> dict:
    made = {}
    for _ in range(levels):
        made = {key: made}
    return made


KEY = "k" * MAX_KEY


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        # A file holds a key once, however many dicts have it; the places of all would be joined from it.
        (below("k" * (1 << 20), 45), "has a key of 1048576 characters; the limit"),
        ([{KEY: 1} for _ in range(MAX_CHARACTERS // MAX_KEY + 1)], "has more text than any"),
        ({(KEY,) * 2000: 1}, "has a key of 2000 values"),
        ({(KEY + "k", 1): 1}, "has a key of 1001 characters"),
        ({2**64: 1}, "is a number of more than 64 bits"),
    ],
    ids=["long", "often", "many", "within", "number"],
)
def test_keys_count_as_text(tmp_path, value, reason):
    with pytest.raises(UserError, match=rf"its extra_state\.strange {reason}"):
        reread(tmp_path, extra_state={"strange": value})
    if "1048576" in reason:
        with pytest.raises(UserError, match=rf"its cfg\.model\.strange {reason}"):
            reread(tmp_path, **checkpoint_state({"strange": value}))


def test_the_place_of_a_value_is_not_kept_in_full():
    tracemalloc.start()
    try:
        plain_state({"extra_state": below(KEY, 48)}, "a.pt", 0)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["O", "V8", "U4", "M8[s]"])
def test_only_numbers_of_numpy_are_read(tmp_path, kind):
    with pytest.raises(UserError, match=r"a\.pt"):
        reread(tmp_path, best=np.zeros(2, kind))


class Calls:
    """What pickles as a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


FORGED = (3, "<", None, None, None, -1, -1, 0x2D)


def test_forged_flags_of_a_dtype_come_to_nothing(tmp_path):
    """The state of a dtype can tell numpy that its values are pointers to objects."""
    dtype = Calls(np.dtype, ("f8", False, True), FORGED)
    believed = np.dtype("f8", False, True)
    believed.__setstate__(FORGED)
    assert believed.hasobject, "numpy does not believe it either"
    content, rebuild = np.array([1.5, 2.5]).tobytes(), np.array([0]).__reduce__()[0]
    array = Calls(rebuild, (np.ndarray, (0,), b"b"), (1, (2,), dtype, False, content))
    number = Calls(np.float64(0).__reduce__()[0], (dtype, content[:8]))
    read = reread(tmp_path, extra_state={"array": array, "number": number})["extra_state"]
    assert not read["array"].dtype.hasobject
    assert (read["array"].tolist(), read["number"]) == ([1.5, 2.5], 1.5)


@pytest.mark.parametrize(
    "value", [np.arange(6).reshape(2, 3), np.float32(0.1), np.ones((2, 2), ">i4"), np.True_]
)
def test_numpy_that_was_loaded_is_saved_and_loaded_again(tmp_path, value):
    again = reread(tmp_path, **copy.deepcopy(reread(tmp_path, best=value)))["best"]
    assert again.dtype == value.dtype.newbyteorder("=")
    assert np.array_equal(again, value)
