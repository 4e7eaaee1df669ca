"""`auto` takes the fused kernels for GPUs only where they compute what dense attention does.

In Triton's interpreter, with kernels that are broken on purpose.
"""

from __future__ import annotations

import logging
import threading

import pytest
import torch
from helpers import HALF_TYPES, computed

pytest.importorskip("triton")

from no_gpu import take_triton_kernels

from user_dir.attention import (
    attention,
    cpu_attention,
    fused_backward,
    fused_backward_short,
    fused_forward,
    fused_forward_long,
    fused_step,
    kernel_self_check,
    launching,
)
from user_dir.attention import fused as kernels
from user_dir.attention.dense import dense_attention
from user_dir.entmax import self_check as rows

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch, taken):
    """Attention by kernels that are unchecked so far, with tiles of 16."""
    monkeypatch.setattr(cpu_attention, "MIN_QUERIES", 1)
    take_triton_kernels(monkeypatch)
    monkeypatch.setattr(kernels, "RESIDENT", 16)
    for name in ("ONE_KERNEL", "TILE"):
        monkeypatch.setattr(kernels, name, {2: 16, 4: 16})
    monkeypatch.setattr(kernel_self_check.attention_check, "_verdicts", {})
    monkeypatch.setattr(kernel_self_check, "ALPHAS", (1.0, 1.5))
    monkeypatch.setattr(kernel_self_check, "HEADS", 2)


class Broken:
    """A kernel whose tensor at one place of its arguments comes out 2 % too large; or that does not run."""

    def __init__(self, kernel, place):
        self.kernel, self.place = kernel, place

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            if self.place is None:
                raise MemoryError("out of resource: shared memory\nRequired: 300000")
            self.kernel[grid](*arguments, **constants)
            if arguments[self.place] is not None:
                arguments[self.place].mul_(1.02)

        return launch


def heads(dtype=torch.float32, head_dim=16, length=2):
    q, k, v = (torch.randn(2, 3, length, head_dim).to(DEVICE, dtype).requires_grad_() for _ in range(3))
    return q, k, v, torch.tensor([1.0, 1.3, 1.8], device=DEVICE).view(-1, 1, 1).requires_grad_()


FORWARD, LONG, STEP = fused_forward, fused_forward_long, fused_step
BACKWARD, LONGER = fused_backward_short, fused_backward
# Kernel and the place of an output among its arguments (None: it raises) → what the warning says is wrong.
BREAKS = {
    "forward": (FORWARD, "forward_short", 12, "the output with 13 queries and 13 keys is off by 0.02"),
    "forward of long rows": (LONG, "forward_long", 12, "the output with 21 queries and 23 keys is off by"),
    "decoding step": (STEP, "forward_step", 12, "the output of a decoding step with 13 keys is off by 0.02"),
    "weights": (STEP, "forward_step", 16, "the weights of a decoding step with 13 keys is off by"),
    "dq": (BACKWARD, "backward_short", 16, "the gradient of the queries with 13 queries and 13 keys is off"),
    "dk": (BACKWARD, "backward_short", 20, "the gradient of the keys with 13 queries and 13 keys is off"),
    "dv": (BACKWARD, "backward_short", 24, "the gradient of the values with 13 queries and 13 keys is off"),
    "dα": (BACKWARD, "backward_short", 29, "the gradient of α with 13 queries and 13 keys is off by 0.02"),
    "dq of long rows": (LONGER, "backward_queries", 16, "the gradient of the queries with 19 queries"),
    "dα of long rows": (LONGER, "backward_queries", 27, "the gradient of α with 19 queries and 13 keys"),
    "dk of long rows": (LONGER, "backward_keys", 16, "the gradient of the keys with 19 queries"),
    "exception": (
        FORWARD,
        "forward_short",
        None,
        "it raised MemoryError: out of resource: shared memory Req",
    ),
    "exception in the backward": (LONGER, "backward_keys", None, "it raised MemoryError: out of resource"),
}


QUICK = ("forward", "dq", "dα", "exception")


@pytest.mark.parametrize(
    "broken", [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in BREAKS]
)
def test_a_broken_kernel_is_named_once_and_not_taken(broken, taken, monkeypatch, caplog):
    module, kernel, place, words = BREAKS[broken]
    monkeypatch.setattr(module, kernel, Broken(getattr(module, kernel), place))
    given = heads()
    for _ in range(2):
        output, _ = attention(*given)
        grads = torch.autograd.grad(output.square().sum(), given)
    assert taken == ["dense"] * 2
    expected = computed(dense_attention, *given)[0]
    assert torch.equal(output, expected)
    assert all(map(torch.equal, grads, torch.autograd.grad(expected.square().sum(), given)))
    [record] = caplog.records
    assert record.levelno == logging.WARNING and words in caplog.text, caplog.text
    assert "torch.float32, 16" in caplog.text and "this process uses dense attention instead" in caplog.text
    if place is not None and kernel == "forward_short":  # the user who names it gets it
        assert not torch.allclose(attention(*given, backend="fused")[0], output, rtol=1e-3)


def test_long_decoding_steps_are_checked_apart(taken, monkeypatch, caplog):
    q, k, v, alpha = heads(length=20)
    kernel_self_check.attention_check._verdicts[q.device, q.dtype, 16, "highest"] = True
    with torch.no_grad():
        step = attention(q[:, :, :1], k, v, alpha, need_weights=True)
        assert taken == ["fused"] and not caplog.records
        monkeypatch.setattr(
            kernel_self_check.attention_check, "_verdicts", {(q.device, q.dtype, 16, "highest"): True}
        )
        monkeypatch.setattr(STEP, "forward_step", Broken(STEP.forward_step, 16))
        again = attention(q[:, :, :1], k, v, alpha, need_weights=True)
        attention(q[:, :, :1], k[:, :, :9], v[:, :, :9], alpha)
    assert taken == ["fused", "dense", "fused"]
    assert "the weights of a decoding step with 23 keys is off by" in caplog.text
    torch.testing.assert_close(step, again, rtol=1e-4, atol=1e-5)


def test_later_launches_are_checked_too(taken, monkeypatch, caplog):
    run, launched = launching.run, set()

    def wrong_from_the_second_on(kernel, grid, arguments, *rest):
        run(kernel, grid, arguments, *rest)
        if kernel in launched:
            arguments[12].mul_(1.02)
        launched.add(kernel)

    monkeypatch.setattr(launching, "run", wrong_from_the_second_on)
    attention(*heads())
    assert taken == ["dense"] and "the output with 13 queries and 13 keys is off by 0.02" in caplog.text


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, *(pytest.param(half, marks=pytest.mark.nightly) for half in HALF_TYPES)],
)
def test_honest_kernels_are_taken(dtype, taken, caplog):
    given = heads(dtype)
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    with torch.inference_mode():
        attention(*given)
    assert torch.equal(torch.rand(3), expected), "the check drew the caller's random numbers"
    attention(*given)
    assert taken == ["fused"] * 2 and not caplog.records and all(leaf.grad is None for leaf in given)


@pytest.fixture
def checked(monkeypatch):
    """The kinds of calls that were checked since, with success and without a comparison."""
    kinds = []
    monkeypatch.setattr(
        kernel_self_check.attention_check, "_compare", lambda *kind: kinds.append(kind) or iter(())
    )
    return kinds


def test_each_kind_of_call_is_checked_once(taken, checked):
    for dtype, head_dim in ((torch.float32, 16), (torch.float16, 16), (torch.float32, 20)) * 2:
        attention(*heads(dtype, head_dim))
    attention(*heads(length=9))
    assert [kind[1:3] for kind in checked] == [
        *((torch.float32, 16), (torch.float16, 16), (torch.float32, 20)),
    ]
    torch.set_float32_matmul_precision("high")  # other arithmetic
    attention(*heads())
    torch.set_float32_matmul_precision("highest")
    assert len(checked) == 4
    attention(*heads(dtype=torch.float64))  # which the kernels do not take
    attention(*heads(head_dim=24), backend="fused")
    assert len(checked) == 4 and taken[-2:] == ["dense", "fused"]


def test_threads_that_come_at_once_check_once(checked):
    together, query = threading.Barrier(4), torch.zeros(1, 1, 2, 16)

    def call():
        together.wait()
        assert kernel_self_check.passes_check(query)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(checked) == 1


def seen_by_the_check():
    """What a small comparison finds as it runs, and one that fails under the wrong settings."""
    found = {}

    def compare(device, *kind):
        x = torch.ones(2, requires_grad=True)
        found.update(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=torch.is_autocast_enabled("cpu"),
            result=torch.autograd.grad((x.view(1, 2) @ x.view(2, 1)).sum(), x)[0].dtype,
            device=str(torch.zeros(1).device),
        )
        torch.rand(3), torch.manual_seed(99)
        return iter(())

    return found, compare


UNDISTURBED = {"grad": True, "inference": False, "autocast": False, "result": torch.float32, "device": "cpu"}


@pytest.mark.parametrize(
    "around",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("none here"),
        lambda: torch.autograd.graph.saved_tensors_hooks(pytest.fail, pytest.fail),
    ],
    ids=["no_grad", "inference_mode", "autocast", "device", "no hooks", "hooks"],
)
def test_the_callers_state_neither_changes_nor_matters(around, monkeypatch):
    found, compare = seen_by_the_check()
    monkeypatch.setattr(kernel_self_check.attention_check, "_compare", compare)
    query = torch.zeros(1, 1, 2, 16)

    def state():
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")

    with around():
        before = state(), torch.get_rng_state().tolist()
        assert kernel_self_check.passes_check(query)
        assert (state(), torch.get_rng_state().tolist()) == before
    assert found == UNDISTURBED


def test_activation_checkpoints_match(taken, monkeypatch):
    """Tensors that the check saves must not be counted as the layer's own."""
    from torch.utils.checkpoint import checkpoint

    found, compare = seen_by_the_check()
    monkeypatch.setattr(kernel_self_check.attention_check, "_compare", compare)
    given = heads()
    output = checkpoint(lambda *x: attention(*x)[0], *given, use_reentrant=False)
    output.sum().backward()
    assert found and taken == ["fused"] * 2 and given[3].grad is not None


def test_nothing_is_checked_while_a_graph_is_captured(checked, monkeypatch):
    device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    kind = (torch.float32, 16, "highest")
    assert kernel_self_check.attention_check.passes(device, *kind) is None and not checked
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert kernel_self_check.attention_check.passes(device, *kind) is True and len(checked) == 1
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: pytest.fail("asked in vain"))
    assert kernel_self_check.attention_check.passes(device, *kind) is True  # a graph may have the kernels now


def test_compiled_callers_are_checked_too(checked):
    compiled = torch.compile(lambda x: kernel_self_check.passes_check(x) and x + 1, backend="eager")
    x = torch.zeros(1, 1, 2, 16)
    for _ in range(2):
        assert torch.equal(compiled(x), x + 1)
    assert len(checked) == 1


def test_no_difference_is_overlooked():
    expected = torch.tensor([1.0, -4.0]).double()
    assert rows.difference("it", expected.float(), expected, 1e-6) is None
    assert rows.difference("it", expected + 0.2, expected, 0.04) == (
        "it is off by 0.05 of the largest entry, more than 0.04"
    )
    for value in (torch.nan, torch.inf):
        assert rows.difference("it", expected * value, expected, 1.0) == "it has entries that are not finite"
