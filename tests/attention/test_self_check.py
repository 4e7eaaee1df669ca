"""`auto` takes the fused kernels for GPUs only where they compute what plain torch does.

In Triton's interpreter, with kernels that are broken on purpose.
"""

from __future__ import annotations

import logging

import pytest
import torch
from helpers import HALF_TYPES, computed

pytest.importorskip("triton")

from no_gpu import take_triton_kernels

from user_dir.attention import attention, cpu, triton
from user_dir.attention.dense import dense_attention
from user_dir.attention.triton import backward, forward, kernels, launching
from user_dir.entmax import self_check

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch, taken):
    """Attention by kernels that are unchecked so far, with tiles of 16."""
    monkeypatch.setattr(cpu, "MIN_QUERIES", 1)
    take_triton_kernels(monkeypatch)
    monkeypatch.setattr(kernels, "RESIDENT", 16)
    for name in ("ONE_KERNEL", "TILE"):
        monkeypatch.setattr(kernels, name, {2: 16, 4: 16})
    monkeypatch.setattr(self_check, "_verdicts", {})
    monkeypatch.setattr(self_check, "ALPHAS", (1.0, 1.5))


class Broken:
    """A kernel whose tensor at one place of its arguments comes out 2 % too large; or that does not run."""

    def __init__(self, kernel, place):
        self.kernel, self.place = kernel, place

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            if self.place is None:
                raise MemoryError("out of resource: shared memory")
            self.kernel[grid](*arguments, **constants)
            if arguments[self.place] is not None:
                arguments[self.place].mul_(1.02)

        return launch


def heads(dtype=torch.float32, head_dim=16, length=2):
    q, k, v = (torch.randn(2, 3, length, head_dim).to(DEVICE, dtype).requires_grad_() for _ in range(3))
    return q, k, v, torch.tensor([1.0, 1.3, 1.8], device=DEVICE).view(-1, 1, 1).requires_grad_()


# Kernel and the place of an output among its arguments (None: it raises) → what the warning says is wrong:
# results are the output and the gradients of queries, keys, values and α, or output and weights of a step.
BREAKS = {
    "forward": (forward, "forward_short", 12, "result 0 of [(2, 2, 13, 16), (2, 2, 13, 16)"),
    "forward of long rows": (forward, "forward_long", 12, "result 0 of [(2, 2, 21, 16), (2, 2, 23, 16)"),
    "decoding step": (forward, "forward_step", 12, "result 0 of [(2, 2, 1, 16), (2, 2, 13, 16)"),
    "weights": (forward, "forward_step", 16, "result 1 of [(2, 2, 1, 16), (2, 2, 13, 16)"),
    "dq": (backward, "backward_short", 16, "result 1 of [(2, 2, 13, 16)"),
    "dk": (backward, "backward_short", 20, "result 2 of [(2, 2, 13, 16)"),
    "dv": (backward, "backward_short", 24, "result 3 of [(2, 2, 13, 16)"),
    "dα": (backward, "backward_short", 29, "result 4 of [(2, 2, 13, 16)"),
    "dq of long rows": (backward, "backward_queries", 16, "result 1 of [(2, 2, 19, 16), (2, 2, 13, 16)"),
    "dα of long rows": (backward, "backward_queries", 27, "result 4 of [(2, 2, 19, 16), (2, 2, 13, 16)"),
    "dk of long rows": (backward, "backward_keys", 16, "result 2 of [(2, 2, 19, 16), (2, 2, 13, 16)"),
    "exception": (forward, "forward_short", None, "it raised MemoryError: out of resource: shared memory"),
}
QUICK = ("forward", "exception")


@pytest.mark.parametrize(
    "broken", [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in BREAKS]
)
def test_a_broken_kernel_is_named_once_and_not_taken(broken, taken, monkeypatch, caplog):
    module, kernel, place, words = BREAKS[broken]
    monkeypatch.setattr(module, kernel, Broken(getattr(module, kernel), place))
    leaves = heads()
    for _ in range(2):
        output, _ = attention(*leaves)
        grads = torch.autograd.grad(output.square().sum(), leaves)
    assert taken == ["dense"] * 2
    expected = computed(dense_attention, *leaves)[0]
    assert torch.equal(output, expected)
    assert all(map(torch.equal, grads, torch.autograd.grad(expected.square().sum(), leaves)))
    [record] = caplog.records
    assert record.levelno == logging.WARNING and words in caplog.text, caplog.text
    if place is not None and kernel == "forward_short":  # the user who names it gets it
        assert not torch.allclose(attention(*leaves, backend="fused")[0], output, rtol=1e-3)


def test_later_launches_are_checked_too(taken, monkeypatch, caplog):
    run, launched = launching.run, set()

    def wrong_from_the_second_on(kernel, grid, arguments, *rest):
        run(kernel, grid, arguments, *rest)
        if kernel in launched:
            arguments[12].mul_(1.02)
        launched.add(kernel)

    monkeypatch.setattr(launching, "run", wrong_from_the_second_on)
    attention(*heads())
    assert taken == ["dense"] and "result 0 of [(2, 2, 13, 16)" in caplog.text


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", (torch.float32, *HALF_TYPES))
def test_honest_kernels_are_taken(dtype, taken, caplog):
    leaves = heads(dtype)
    with torch.inference_mode():
        attention(*leaves)
    attention(*leaves)
    assert taken == ["fused"] * 2 and not caplog.records and all(leaf.grad is None for leaf in leaves)


@pytest.fixture
def checked(monkeypatch):
    """The kinds of calls that were checked since, with success and without a comparison."""
    kinds = []
    monkeypatch.setattr(triton, "_problems", lambda generator, *kind: kinds.append(kind) or iter(()))
    return kinds


def test_each_kind_of_call_is_checked_once(taken, checked):
    for dtype, head_dim in ((torch.float32, 16), (torch.float16, 16), (torch.float32, 20)) * 2:
        attention(*heads(dtype, head_dim))
    attention(*heads(length=9))
    assert [kind[:2] for kind in checked] == [
        *((torch.float32, 16), (torch.float16, 16), (torch.float32, 20)),
    ]
    torch.set_float32_matmul_precision("high")  # other arithmetic
    attention(*heads())
    torch.set_float32_matmul_precision("highest")
    assert len(checked) == 4
    attention(*heads(dtype=torch.float64))  # which the kernels do not take
    attention(*heads(head_dim=24), backend="fused")
    assert len(checked) == 4 and taken[-2:] == ["dense", "fused"]


def test_activation_checkpoints_match(taken, checked):
    """Tensors that the check saves must not be counted as the layer's own."""
    from torch.utils.checkpoint import checkpoint

    leaves = heads()
    output = checkpoint(lambda *x: attention(*x)[0], *leaves, use_reentrant=False)
    output.sum().backward()
    assert checked and taken == ["fused"] * 2 and leaves[3].grad is not None


def test_compiled_callers_are_checked_too(checked):
    device = torch.device("cpu")
    compiled = torch.compile(
        lambda x: triton.passes_check(device, torch.float32, 16) and x + 1, backend="eager"
    )
    x = torch.zeros(1, 1, 2, 16)
    for _ in range(2):
        assert torch.equal(compiled(x), x + 1)
    assert len(checked) == 1
