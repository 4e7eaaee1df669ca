"""Checkpoints as safetensors files: everything comes back, the same bytes for the same state, and no code."""

import json
import math
from argparse import Namespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_release import tiny_state

from user_dir.checkpoints import for_inference, load_checkpoint, save_checkpoint
from user_dir.eight_bits import packed, rounded
from user_dir.errors import UserError
from user_dir.safetensors_checkpoints import read_safetensors, write_safetensors


def same(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Namespace):
        return isinstance(right, Namespace) and same(vars(left), vars(right))
    return type(left) is type(right) and (left == right or (left != left and right != right))


STATES = {
    "scalars": {"a": None, "b": True, "c": -3, "d": 0.1, "e": "ü\n", "f": 2**60},
    "not finite": {"a": math.inf, "b": -math.inf, "c": math.nan},
    "nested": {"a": [1, (2, [3, ()]), {}], "b": {"c": {"d": Namespace(e=(1, None), f={"g": []})}}},
    "tensors": {"x": torch.arange(3), "y": {"z": (torch.ones(2, 2).bfloat16(), torch.tensor(1.5).double())}},
}


@pytest.mark.parametrize("case", STATES)
def test_everything_comes_back(case, tmp_path):
    write_safetensors(STATES[case], tmp_path / "x.safetensors")
    found = read_safetensors(tmp_path / "x.safetensors")
    assert same({key: found[key] for key in STATES[case]}, STATES[case])


@pytest.mark.parametrize("eight_bits", (False, True))
def test_a_checkpoint_is_read_as_from_torchs_file(eight_bits, tmp_path):
    state = tiny_state()
    state["model"] = rounded(state["model"])
    save_checkpoint(state, tmp_path / "x.pt")
    expected = for_inference(load_checkpoint(tmp_path / "x.pt"))
    path = tmp_path / "x.safetensors"
    write_safetensors(packed(expected) if eight_bits else expected, path)
    found = load_checkpoint(path)
    assert found.keys() == expected.keys() and found["model"].keys() == expected["model"].keys()
    for key in expected["model"]:
        assert same(found["model"][key], expected["model"][key]), key
    rest = expected.keys() - {"model"}
    assert json.dumps([found[key] for key in sorted(rest)], default=vars, sort_keys=True) == json.dumps(
        [expected[key] for key in sorted(rest)], default=vars, sort_keys=True
    )
    tied = [found["model"][f"{side}.embed_tokens.weight"] for side in ("encoder", "decoder")]
    assert tied[0].data_ptr() == tied[1].data_ptr()
    matrices = sum(each.numel() for each in set(expected["model"].values()) if each.dim() == 2)
    assert path.stat().st_size < (2 if eight_bits else 5) * matrices + 100_000


def test_the_same_state_gives_the_same_bytes(tmp_path):
    state = for_inference(tiny_state())
    for name in ("one", "two"):
        write_safetensors(state, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("value", (object(), {1: 2}, {"$tensor": "x"}, {1, 2}))
def test_what_is_not_plain_is_not_written(value, tmp_path):
    with pytest.raises(TypeError):
        write_safetensors({"a": value}, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


METADATA = {
    "none": None,
    "of others": {"format": "pt"},
    "no JSON": {"checkpoint": "{"},
    "deep": {"checkpoint": "[" * 100_000},
    "no state": {"checkpoint": "3"},
    "a tensor that is not there": {"checkpoint": '{"model": {"x": {"$tensor": "y"}}}'},
    "an unknown kind": {"checkpoint": '{"model": {}, "cfg": {"$code": "x"}}'},
    "no float": {"checkpoint": '{"model": {}, "cfg": {"$float": "1"}}'},
    "no tuple": {"checkpoint": '{"model": {}, "cfg": {"$tuple": {}}}'},
    "a namespace of a list": {"checkpoint": '{"model": {}, "cfg": {"$namespace": []}}'},
    "no settings": {"checkpoint": '{"model": {"x": {"$tensor": "x"}}}'},
    "a setting that is code": {
        "checkpoint": '{"model": {}, "args": null, "cfg": {"task": {"data": "x"}, '
        '"model": {"_name": "transformer", "adam_betas": "__import__(\'os\')"}}}'
    },
}


@pytest.mark.parametrize("case", METADATA)
def test_other_files_are_refused(case, tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"x": torch.ones(2)}, path, METADATA[case])
    with pytest.raises(UserError, match=r"x\.safetensors"):
        load_checkpoint(path)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write_safetensors(for_inference(tiny_state()), path)
    whole = path.read_bytes()
    for content in (b"", whole[:100], whole[:-1], whole + b"x", b"\xff" * 8 + whole[8:]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"x\.safetensors"):
            load_checkpoint(path)


def test_a_file_that_is_cut_later_does_no_harm(tmp_path):
    path = tmp_path / "x.safetensors"
    write_safetensors(for_inference(tiny_state()), path)
    state = load_checkpoint(path)
    before = {name: value.clone() for name, value in state["model"].items()}
    path.write_bytes(b"")
    assert all(torch.equal(state["model"][name], value) for name, value in before.items())


def test_others_can_read_the_parameters(tmp_path):
    state = for_inference(tiny_state())
    write_safetensors(state, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", "pt") as file:
        for name in ("encoder.layers.0.fc1.bias", "decoder.embed_tokens.weight"):
            stored = name.replace("decoder.embed_tokens", "encoder.embed_tokens")
            assert torch.equal(file.get_tensor(f"model.{stored}"), state["model"][name])
