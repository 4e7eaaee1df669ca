"""The backend of the model's attention, and when its weights are returned."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import models
from fairseq.models.transformer import TransformerDecoderBase
from helpers import DENSE, MODEL_TOLERANCE, SMALL, batch, build, loss, parse, translation_task

from user_dir.attention import cpu as cpu_attention
from user_dir.attention.dense import dense_attention
from user_dir.attention.normalizers.alpha_entmax import Entmax
from user_dir.errors import UserError

ARCH = "adaptively_sparse_transformer"
native = pytest.mark.usefixtures("_native_kernel")


@pytest.fixture
def _native_kernel():
    if not cpu_attention.kernels.available():
        pytest.skip("no compiler")


@pytest.fixture
def taken(monkeypatch):
    """The implementation of each attention call since."""
    calls = []
    kernel = cpu_attention.KERNEL
    fused, dense = kernel.compute, dense_attention
    monkeypatch.setattr(cpu_attention, "MIN_QUERIES", 1)
    monkeypatch.setattr(kernel, "compute", lambda *args: calls.append("fused") or fused(*args))
    monkeypatch.setattr(DENSE, lambda *args: calls.append("dense") or dense(*args))
    return calls


@native
@pytest.mark.parametrize(
    "flags, kind", [("", "fused"), ("auto", "fused"), ("fused", "fused"), ("dense", "dense")]
)
def test_the_requested_backend_is_used(flags, kind, taken):
    model = build(f"--attention-backend {flags}" if flags else "")
    value = loss(model, batch())
    assert taken == [kind] * 6
    torch.testing.assert_close(value, loss(build("--attention-backend dense"), batch()), **MODEL_TOLERANCE)


def test_fused_is_refused_without_fused_kernels(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("ENTMAX_BACKEND", "reference")
    with pytest.raises(UserError, match=r"fused: the fused kernel for the CPU .* compiler.* ENTMAX_BACKEND"):
        build("--attention-backend fused")
    build("--attention-backend auto")


@pytest.mark.parametrize(
    "flags", ("", "--checkpoint-activations", "--offload-activations", "--cross-self-attention")
)
def test_the_decoder_passes_the_causal_mask(flags, monkeypatch):
    sample, calls = batch(), []
    model = build(f"--attention-backend dense {flags}").train()
    compute = Entmax.forward

    def kept(self, inputs, backend):
        calls.append(inputs)
        return compute(self, inputs, backend)

    monkeypatch.setattr(Entmax, "forward", kept)
    value = loss(model, sample)
    value.backward()
    decoder = [(call.causal, call.attn_mask is None) for call in calls][2:6:2]
    assert decoder == ([(False, False)] if flags == "--cross-self-attention" else [(True, True)]) * 2
    assert all((call.causal, call.attn_mask) == (False, None) for call in calls[:2])
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    monkeypatch.setattr(
        type(model.decoder), "buffered_future_mask", TransformerDecoderBase.buffered_future_mask
    )
    model.zero_grad()
    other = loss(model, sample)
    other.backward()
    torch.testing.assert_close(value, other, **MODEL_TOLERANCE)
    for mine, stock in zip(gradients, (parameter.grad for parameter in model.parameters())):
        torch.testing.assert_close(mine, stock, **MODEL_TOLERANCE)


def outputs(model):
    sample = batch()
    return model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])[1]["attn"][0]


def test_weights_are_discarded_in_training_by_fairseq_and_its_validation():
    model = build().train()
    assert outputs(model).shape == (3, 6, 7)  # in a custom training loop
    model.after_update(1)
    assert outputs(model) is None
    assert outputs(model.eval()) is None
    loaded = build()
    loaded.set_num_updates(1)  # as when a checkpoint is loaded for translation
    assert outputs(loaded.eval()).shape == (3, 6, 7)


def test_weights_are_returned_when_alignment_is_trained():
    task = translation_task()
    task.cfg = SimpleNamespace(load_alignments=True)
    model = models.build_model(parse(SMALL, ARCH), task).train()
    model.after_update(1)
    assert outputs(model).shape == (3, 6, 7)


def test_only_returned_weights_are_computed(monkeypatch):
    asked = []
    monkeypatch.setattr(
        DENSE,
        lambda *args: asked.append(args[0].need_weights) or dense_attention(*args),
    )
    model = build("--attention-backend dense").eval()
    outputs(model)
    assert asked == [False] * 5 + [True]
    model.make_generation_fast_(need_attn="hard")  # as with --print-alignment
    outputs(model)
    assert asked == ([False] * 5 + [True]) * 2
