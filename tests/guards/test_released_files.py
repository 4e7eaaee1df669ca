"""Checkpoints of release archives, read without torch: as with it, or not at all."""

import numpy as np
import pytest
import torch
from tiny_release import tiny_state

from user_dir.checkpoints import load_checkpoint
from user_dir.eight_bits import packed, rounded
from user_dir.guards.released_files import ALPHAS, read_released
from user_dir.releases.building import released_state
from user_dir.safetensors_checkpoints import write_safetensors
from user_dir.translation.limits import Limit

NAME = "decoder.layers.0.fc1.weight"


def released() -> dict:
    return released_state(tiny_state(), Limit())


def written(state: dict, path) -> dict | None:
    write_safetensors(state, path)
    return read_released(path)


@pytest.mark.parametrize("integers", (False, True))
def test_it_is_what_torch_reads(integers, tmp_path):
    given = tiny_state()
    if integers:
        given["model"] = rounded(given["model"])
    state = released_state(given, Limit())
    if integers:
        state = packed(state)
    found, expected = written(state, tmp_path / "a.safetensors"), load_checkpoint(tmp_path / "a.safetensors")
    model, parameters = found.pop("model"), expected.pop("model")
    assert found == expected and model.keys() == parameters.keys()
    for name, array in model.items():
        assert np.array_equal(array, parameters[name]) and array.dtype == np.float32
    tied = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
    assert (model[tied[0]] is model[tied[1]]) == torch.equal(parameters[tied[0]], parameters[tied[1]])


def changed(state: dict, fault: str) -> None:
    value = state["model"][NAME]
    if fault == "NaN":
        state["model"][NAME] = value.where(value < value.max(), torch.nan)
    elif fault in ("bfloat16", "int32"):
        state["model"][NAME] = value.to(getattr(torch, fault))
    elif fault == "no α":
        del state["extra_state"][ALPHAS]
    elif fault == "no history":
        state["optimizer_history"] = [{"num_updates": -1}]
    elif fault == "a file of the settings":
        state["cfg"]["model"]["encoder_layers_to_keep"] = "__import__('os')"
    elif fault == "more than the file has":
        state["model"].update(dict.fromkeys(map(str, range(2000)), torch.ones(300, 300)))
    elif fault == "not a model":
        state["model"] = [1, 2]


FAULTS = ("NaN", "bfloat16", "int32", "no α", "no history", "more than the file has", "not a model")


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_doubtful_is_left_to_torch(fault, tmp_path):
    state = released()
    changed(state, fault)
    assert written(state, tmp_path / "a.safetensors") is None


@pytest.mark.parametrize("content", (b"", b"\0" * 9, b"\xff" * 100, b"\2\0\0\0\0\0\0\0{}"))
def test_no_file_of_these(content, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    assert read_released(path) is None
    assert read_released(tmp_path / "absent.safetensors") is None
