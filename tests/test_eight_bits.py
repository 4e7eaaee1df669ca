"""Matrices in 8 bits: rounded as the equation says, stored exactly, and refused where they are no such."""

from __future__ import annotations

import pytest
import torch
from tiny_release import tiny_checkpoint, tiny_state

from user_dir.checkpoints import for_inference, load_checkpoint, save_checkpoint
from user_dir.eight_bits import is_rounded, packed, rounded
from user_dir.errors import UserError
from user_dir.guards.checkpoint_files import read_checkpoint


def matrices(scale: float) -> dict:
    generator = torch.Generator().manual_seed(3)
    wide = torch.randn(7, 33, generator=generator) * scale
    wide[2], wide[3, 5] = 0, 40 * scale
    return {"wide": wide, "tall": torch.rand(50, 1, generator=generator), "bias": torch.rand(9)}


@pytest.mark.parametrize("scale", [1e-6, 1.0, 3e4])
def test_rows_are_rounded_to_integers_times_a_number(scale):
    given = matrices(scale)
    found = rounded(given)
    assert torch.equal(found["bias"], given["bias"])
    for name in ("wide", "tall"):
        for row, exact in zip(found[name].double(), given[name].double()):
            step = exact.abs().max() / 127
            assert (row - exact).abs().max() <= 0.5001 * step
            if step:
                assert torch.allclose((row / step).round(), row / step, atol=127 * 2**-14)
    assert not is_rounded(given) and is_rounded(found)
    again = rounded(found)
    assert all(torch.equal(again[name], found[name]) for name in given)


def test_what_is_not_a_matrix_of_float32_is_never_packed():
    assert not is_rounded({"bias": torch.ones(3)})
    assert not is_rounded({"wide": rounded(matrices(1.0))["wide"].double()})


def test_a_packed_checkpoint_is_small_and_stands_for_the_same_parameters(tmp_path):
    state = tiny_state()
    state["model"] = rounded(state["model"])
    state = for_inference(load_checkpoint(tiny_checkpoint(tmp_path / "whole.pt", state)))
    save_checkpoint(packed(state), tmp_path / "packed.pt")
    found = load_checkpoint(tmp_path / "packed.pt")["model"]
    assert found.keys() == state["model"].keys()
    for name, value in state["model"].items():
        assert torch.equal(found[name], value) and found[name].dtype == value.dtype, name
    integers = packed(state)["eight_bits"]
    tied = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
    assert integers[tied[0]][0] is integers[tied[1]][0]
    assert all(value.dim() != 2 for value in packed(state)["model"].values())
    assert found[tied[0]] is found[tied[1]]
    assert not {"model", "eight_bits"} & read_checkpoint(tmp_path / "packed.pt", leave_out=["model"]).keys()


WRONG = {
    "none": None,
    "no pair": {"x": torch.zeros(2, 2, dtype=torch.int8)},
    "floats": {"x": (torch.zeros(2, 2), torch.ones(2, 1))},
    "no scale for each row": {"x": (torch.zeros(2, 2, dtype=torch.int8), torch.ones(1, 1))},
    "scales of another type": {"x": (torch.zeros(2, 2, dtype=torch.int8), torch.ones(2, 1).double())},
    "expanded": {"x": (torch.zeros(1, dtype=torch.int8).expand(9, 9), torch.ones(9, 1))},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_packed_so_is_refused(case, tmp_path):
    state = {**for_inference(tiny_state()), "eight_bits": WRONG[case]}
    save_checkpoint(state, tmp_path / "packed.pt")
    with pytest.raises(UserError, match="packed"):
        load_checkpoint(tmp_path / "packed.pt")
