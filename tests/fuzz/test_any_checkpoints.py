"""Checkpoints with something hostile anywhere in them: refused, or what is read is plain; nothing runs."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections import Counter, OrderedDict

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from search import search, sentence

from user_dir.guards.checkpoint_files import read_checkpoint
from user_dir.guards.hostile_settings import EVALUATED

STATE = {
    "args": None,
    "cfg": {
        "model": Namespace(_name="transformer", encoder_layers=2, dropout=0.1, names=["a", "b"]),
        "task": {"_name": "translation", "source_lang": "de", "inner": {"deep": [1, 2.5, None, "x"]}},
        "common": {"seed": 1, "log": {}},
    },
    "model": {"encoder.weight": torch.ones(3, 4), "decoder.bias": torch.zeros(5)},
    "optimizer_history": [{"num_updates": 3, "lr_scheduler_state": {"best": 1.5}}],
    "extra_state": {"train_iterator": {"epoch": 1}, "best": np.float64(1.5)},
    "last_optimizer_state": {"state": {0: {"exp_avg": torch.ones(2)}}, "groups": [{"lr": 0.1}]},
}
PLAIN = (str, bool, int, float, type(None), list, tuple, dict, Namespace, torch.Tensor)
REAL = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64}


class Calls:
    """What pickles as a call of ``open``."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


class Disguised(OrderedDict):
    """Pickles as an OrderedDict with items, and attributes beside them."""

    def __reduce__(self):
        return OrderedDict, (), {"_name": "fconv"}, None, iter(self.items())


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


def with_attribute(tensor: torch.Tensor) -> torch.Tensor:
    tensor.code = "print()"
    return tensor


# Each is refused wherever a value can stand.
HOSTILE = {
    "a call": Calls,
    "attributes beside items": lambda _: Disguised(a=1),
    "a set": lambda _: {1},
    "bytes": lambda _: b"x",
    "a bytearray": lambda _: bytearray(b"x"),
    "a key of bytes": lambda _: {b"x": 1},
    "a complex number": lambda _: 1j,
    "a number of 10,000 bits": lambda _: 1 << 10_000,
    "60 levels": lambda _: nested(60),
    "a type": lambda _: torch.float32,
    "a meta tensor": lambda _: torch.empty(2, device="meta"),
    "a sparse tensor": lambda _: torch.ones(2, 2).to_sparse(),
    "a tensor of compressed rows": lambda _: torch.eye(3).to_sparse_csr(),
    "a quantised tensor": lambda _: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "an overlapping tensor": lambda _: torch.ones(8).as_strided((8, 8), (1, 0)),
    "a complex tensor": lambda _: torch.ones(2, dtype=torch.complex64),
    "a float8 tensor": lambda _: torch.ones(2).to(torch.float8_e4m3fn),
    "a tensor of 1 TiB": lambda _: torch.ones(1).expand(1 << 38),
}
# Plain data, but settings hold no tensors.
HARMLESS = (None, True, 3, -0.5, "x", [], [1, "a"], {"a": {}}, (1, 2), 2**62)


def containers(value, path=("state",)):
    """Every dict, list and Namespace in a state, with where it is."""
    inner = vars(value) if isinstance(value, Namespace) else value
    if isinstance(inner, (dict, list)):
        yield inner, path
        for key, each in inner.items() if isinstance(inner, dict) else enumerate(inner):
            yield from containers(each, (*path, key))


@st.composite
def place(draw):
    """A copy of the state, a container in it, and what puts a value there."""
    state = copy.deepcopy(STATE)
    inner, path = draw(st.sampled_from([each for each in containers(state) if len(each[1]) > 1]))

    def put(value):
        if isinstance(inner, list):
            inner.append(value)
        else:
            inner["new"] = value

    return state, path, inner, put


def is_plain(value, depth: int = 0) -> bool:
    if type(value) not in PLAIN or depth > 50:
        return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf"
    if isinstance(value, torch.Tensor):
        return not vars(value) and value.dtype in REAL and value.untyped_storage().nbytes() < 1000
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(each, depth + 1) for key, each in value.items())
    return not isinstance(value, (list, tuple)) or all(is_plain(each, depth + 1) for each in value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


def read(folder, state, zipped: bool) -> tuple[str | None, object]:
    """What is said of a checkpoint, and what is read of it."""
    torch.save(state, folder / "a.pt", _use_new_zipfile_serialization=zipped)
    found: list = []
    message = sentence(lambda: found.append(read_checkpoint(folder / "a.pt")))
    return message, found[0] if found else None


@pytest.mark.parametrize("kind", HOSTILE)
@search(12)
@hypothesis.given(place(), st.booleans())
def test_nothing_hostile_is_read_or_run(folder, kind, at, zipped):
    state, path, _, put = at
    put(HOSTILE[kind](folder / "marker"))
    message, _ = read(folder, state, zipped)
    assert message is not None, f"{kind} was read at {path}"
    assert "refused" in message or "not a checkpoint" in message
    assert not (folder / "marker").exists()


@search(30)
@hypothesis.given(place(), st.sampled_from(HARMLESS), st.booleans())
def test_plain_data_is_read(folder, at, value, zipped):
    state, path, _, put = at
    hypothesis.assume(path[1] != "model" and path != ("state", "optimizer_history"))
    put(value)
    message, found = read(folder, state, zipped)
    assert message is None, (path, value, message)
    assert is_plain(found) and found["model"]["encoder.weight"].shape == (3, 4)


@search(30)
@hypothesis.given(place(), st.booleans())
def test_cycles_end(folder, at, zipped):
    state, _, inner, put = at
    put(inner)
    message, _ = read(folder, state, zipped)
    assert message is not None and "refused" in message


@search(60)
@hypothesis.given(
    st.sampled_from(sorted(EVALUATED)),
    st.sampled_from(
        ("open('{0}', 'w')", "[open('{0}', 'w')] and 1", "__import__('os').mkdir('{0}')", "${{a}}")
    ),
    st.sampled_from(("model", "task", "common")),
    st.booleans(),
)
def test_code_among_settings_is_not_run(folder, name, code, section, within):
    state = copy.deepcopy(STATE)
    settings = state["cfg"][section]
    settings = vars(settings) if isinstance(settings, Namespace) else settings
    value = code.format(folder / "marker")
    settings[name] = [value] if within else value
    message, _ = read(folder, state, True)
    assert message is not None and "refused" in message and not (folder / "marker").exists()
    settings[name] = "[(512, 3)] * 4" if within else "(0.9, 0.98)"
    assert read(folder, state, True)[0] is None


def test_any_mixture():
    """Also of hostile values with harmless ones: what is read is plain, or it is refused; both happen."""
    outcomes: Counter = Counter()

    @search(60)
    @hypothesis.given(
        place(), st.sampled_from((*HARMLESS, *HOSTILE, torch.ones(2), with_attribute(torch.ones(2))))
    )
    def check(at, value):
        state, _, _, put = at
        put(HOSTILE[value]("nowhere/marker") if isinstance(value, str) and value in HOSTILE else value)
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as name:
            message, found = read(Path(name), state, True)
            assert message is not None or is_plain(found)
        outcomes["refused" if message else "read"] += 1

    check()
    assert min(outcomes["refused"], outcomes["read"]) > outcomes.total() / 6, outcomes
