"""Which backend computes attention: by name, by ``auto``, and with the reasons why not."""

from types import SimpleNamespace

import pytest
import torch
from no_gpu import take_triton_kernels

from user_dir.attention import AttentionInputs, attention, cpu, dispatch
from user_dir.attention.inputs import Backend
from user_dir.attention.triton import KERNEL, MOST_KEYS_IN_FLOAT32
from user_dir.entmax.reference import working_dtype

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # Triton's interpreter uses numpy


def route(monkeypatch, kernel):
    """Attention as on a CPU, or as on a GPU whose kernels are trusted."""
    monkeypatch.setattr(cpu, "MIN_QUERIES", 0)
    monkeypatch.setenv("ENTMAX_BACKEND", "native" if kernel == "cpu" else "reference")
    if kernel == "triton":
        pytest.importorskip("triton")
        take_triton_kernels(monkeypatch)
        monkeypatch.setattr("user_dir.attention.triton.passes_check", lambda *arguments, **options: True)


@pytest.fixture(params=("cpu", "triton"))
def kernel(request, monkeypatch):
    route(monkeypatch, request.param)
    return request.param


def inputs(**changes):
    named = {name: torch.randn(2, 3, 6, 16) for name in ("query", "key", "value")}
    return {**named, "alpha": torch.tensor(1.5), **changes}


BOTH = {
    "head dimension 16, but values 8": {"value": torch.zeros(2, 3, 6, 8)},
    "(2, 3, 1, 1), not one entry per head": {"alpha": torch.full((2, 3, 1, 1), 1.5)},
    "no keys": {name: torch.zeros(2, 3, 0, 16) for name in ("key", "value")},
    "no queries": {"query": torch.zeros(2, 3, 0, 16)},
}
ONE = {
    "cpu": {
        "not torch.float32 and torch.float64": {"value": torch.zeros(2, 3, 6, 16).double()},
        "needs a gradient": {"attn_mask": torch.zeros(6, 6, requires_grad=True)},
        "attn_mask broadcasts from (1, 6)": {"attn_mask": torch.zeros(1, 6)},
    },
    "triton": {
        "attention weights only in decoding steps": {"need_weights": True},
        "no attn_mask": {"attn_mask": torch.zeros(6, 6)},
        "dropout leaves no weights": {"dropout": 1.0},
        "not torch.float64": {name: torch.zeros(2, 3, 6, 16).double() for name in ("query", "key", "value")},
        "head dimension 136 exceeds": {name: torch.zeros(2, 3, 6, 136) for name in ("query", "key", "value")},
    },
}


@pytest.mark.parametrize(
    "kernel, reason", [(kernel, reason) for kernel in ONE for reason in {**BOTH, **ONE[kernel]}]
)
def test_auto_falls_back_to_dense_and_fused_gives_the_reason(kernel, reason, monkeypatch, taken):
    route(monkeypatch, kernel)
    arguments = inputs(**{**BOTH, **ONE[kernel]}[reason])
    if reason != "not torch.float32 and torch.float64":  # torch cannot multiply these either
        attention(**arguments)
        assert taken == ["dense"]
    with pytest.raises(ValueError, match="fused attention does not take these arguments: ") as caught:
        attention(**arguments, backend="fused")
    assert reason in str(caught.value) and "fused" not in taken


def test_the_requested_backend_is_used(kernel, taken):
    arguments = inputs()
    for backend in ("auto", "fused", "dense"):
        attention(**arguments, backend=backend)
    assert taken == ["fused", "fused", "dense"]
    for unknown in ("flash", "", "Fused", None):
        with pytest.raises(ValueError, match=r"no attention backend .* for cpu: choose from auto, fused, "):
            attention(**arguments, backend=unknown)
    with pytest.raises(ValueError, match=r"alpha must be at least 1 and finite, not 0\.5"):
        attention(**inputs(alpha=0.5))


def test_auto_uses_the_faster_one_on_a_cpu(monkeypatch, taken):
    route(monkeypatch, "cpu")
    attention(**inputs(alpha=1.0))
    monkeypatch.setattr(cpu, "MIN_QUERIES", 7)
    attention(**inputs())
    assert "fused" not in taken
    taken.clear()
    for alpha in (1.0, 1.5):  # but uses the fused kernel on request
        arguments = inputs(alpha=alpha)
        fused, dense = (attention(**arguments, backend=backend)[0] for backend in ("fused", "dense"))
        torch.testing.assert_close(fused, dense, rtol=0, atol=1e-5)
    assert taken == ["fused", "dense"] * 2


class Sdpa(Backend):
    """Softmax without masks, by torch."""

    name = "sdpa"

    def unsupported(self, inputs):
        if isinstance(inputs.alpha, torch.Tensor) or inputs.alpha != 1:
            return "α is not the number 1"
        return None if inputs.key_padding_mask is None else "there is a mask"

    def compute(self, inputs):
        query, key, value = (tensor.to(working_dtype(tensor.dtype)) for tensor in inputs[:3])
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=inputs.causal)
        return output.to(inputs.query.dtype), None


@pytest.mark.parametrize("dtype", (torch.float64, torch.bfloat16))
@pytest.mark.parametrize("causal", (False, True))
def test_another_backend(dtype, causal, taken, monkeypatch):
    monkeypatch.setattr(dispatch, "TABLE", (Sdpa(), *dispatch.TABLE))
    monkeypatch.setattr(dispatch, "BACKENDS", (*dispatch.BACKENDS, "sdpa"))
    leaves = [torch.randn(2, 3, 6, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = [
            attention(*leaves, 1.0, causal=causal, backend=name)[0] for name in ("auto", "sdpa", "dense")
        ]
    assert taken == ["dense"]
    grads = [torch.autograd.grad(output.square().sum(), leaves) for output in outputs]
    for output, grad in zip(outputs, grads):
        torch.testing.assert_close(output, outputs[-1])
        torch.testing.assert_close(grad, grads[-1])
    mask = torch.zeros(2, 6, dtype=torch.bool)
    for changes, reason in (({"key_padding_mask": mask}, "a mask"), ({"alpha": 1.5}, "the number 1")):
        arguments = inputs(**{"alpha": 1.0, **changes})
        attention(**arguments)
        with pytest.raises(ValueError, match=f"sdpa attention does not take these arguments: .*{reason}"):
            attention(**arguments, backend="sdpa")


def test_auto_is_dense_for_many_keys_in_float32_on_a_gpu(monkeypatch):
    monkeypatch.setattr(Backend, "is_preferred", lambda *arguments: True)
    monkeypatch.setattr("user_dir.attention.triton.passes_check", lambda *arguments: True)

    def dense(keys, dtype, queries=3):
        query, key = (
            SimpleNamespace(device=SimpleNamespace(type="cuda"), dtype=dtype, size=lambda dim, n=n: n)
            for n in (queries, keys)
        )
        return not KERNEL.is_preferred(AttentionInputs(query, key, key, torch.ones(2, 1, 1)))

    most = MOST_KEYS_IN_FLOAT32
    assert dense(most + 1, torch.float32) and not dense(most, torch.float32)
    assert not dense(most + 1, torch.bfloat16) and not dense(most + 1, torch.float16)
    assert dense(most + 1, torch.float32, queries=1)
    with torch.no_grad():  # a decoding step
        assert not dense(most + 1, torch.float32, queries=1) and dense(most + 1, torch.float32)
