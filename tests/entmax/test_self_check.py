"""GPU kernels are used only where they compute what plain torch does; in Triton's interpreter."""

import logging

import pytest
import torch
from helpers import HALF_TYPES

pytest.importorskip("triton")

from user_dir.entmax import entmax, op, reference, self_check
from user_dir.entmax import triton as kernels

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    """entmax and its loss take these kernels, unchecked so far; rows of more than 40 are long."""
    monkeypatch.delenv("ENTMAX_BACKEND", raising=False)
    monkeypatch.setattr(self_check, "_verdicts", {})
    monkeypatch.setattr(op, "_native", lambda device: kernels)
    monkeypatch.setattr(kernels, "RESIDENT", 40)
    monkeypatch.setattr(kernels, "TILE", 64)


def used(dtype=torch.float32):
    """The module that entmax came to."""
    alpha = torch.full((1,), 1.5, device=DEVICE).requires_grad_()
    return entmax(torch.randn(2, 7).to(DEVICE, dtype), alpha).grad_fn.implementation


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF_TYPES])
def test_honest_kernels_are_used(dtype, caplog):
    assert used(dtype) is used(dtype) is kernels
    assert not caplog.records


def spoilt(function, place):
    def broken(*args, **options):
        results = function(*args, **options)
        if place is None:
            return results * 1.02
        return tuple(result * 1.02 if i == place else result for i, result in enumerate(results))

    return broken


@pytest.mark.parametrize(
    "function, place, words",
    [
        ("entmax_forward", None, "result 0 of [(4, 3, 19), (4, 1, 1)] is off by 0.0"),
        ("entmax_backward", 0, "result 1 of [(4, 3, 19), (4, 1, 1)] is off by 0.0"),
        ("entmax_backward", 1, "result 2 of [(4, 3, 19), (4, 1, 1)] is off by 0.0"),
        ("entmax_forward", "raises", "it raised ZeroDivisionError"),
    ],
)
def test_kernels_that_fail_are_not_used(monkeypatch, caplog, function, place, words):
    broken = spoilt(getattr(kernels, function), place) if place != "raises" else lambda *args: 1 / 0
    monkeypatch.setattr(kernels, function, broken)
    assert used() is used() is reference
    [record] = caplog.records
    assert record.levelno == logging.WARNING and words in caplog.text and "uses plain torch" in caplog.text
    monkeypatch.setenv("ENTMAX_BACKEND", "native")  # by name, unchecked
    if place != "raises":
        assert used() is kernels


def seen_by_a_check():
    """What problems see as they are made, and problems that are none."""
    seen = {}

    def problems(generator, dtype):
        x = torch.ones(2, requires_grad=True)
        seen.update(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=torch.is_autocast_enabled("cpu"),
            result=torch.autograd.grad((x.view(1, 2) @ x.view(2, 1)).sum(), x)[0].dtype,
            device=str(torch.zeros(1).device),
        )
        torch.rand(3, generator=generator)
        return iter(())

    return seen, problems


@pytest.mark.parametrize(
    "around",
    [
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("none here"),
    ],
    ids=["inference_mode", "autocast", "device", "no hooks"],
)
def test_the_callers_state_neither_changes_nor_matters(around):
    seen, problems = seen_by_a_check()
    with around():
        before = torch.get_rng_state().tolist()
        assert self_check.passes("a kernel", problems, torch.device("cpu"), torch.float32)
        assert torch.get_rng_state().tolist() == before
    assert seen.pop("result") == torch.float32
    assert seen == {"grad": True, "inference": False, "autocast": False, "device": "cpu"}


def test_nothing_is_checked_while_a_graph_is_captured(monkeypatch):
    seen, problems = seen_by_a_check()
    call = ("a kernel", problems, torch.device("cuda", 0), torch.float32)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert self_check.passes(*call) is None and not seen
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert self_check.passes(*call) is True and seen
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: pytest.fail("asked in vain"))
    assert self_check.passes(*call) is True  # a graph may have the kernels now
