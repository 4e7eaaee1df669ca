"""What computes the model's attention, and who is given its weights."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from helpers import MODEL_TOLERANCE, SMALL, batch, build, loss, parse, translation_task

from user_dir.attention import cpu, op
from user_dir.errors import UserError
from user_dir.models.flags import attention_backend

ARCH = "adaptively_sparse_transformer"
native = pytest.mark.skipif(cpu.kernel() is None, reason="no compiler")


@pytest.fixture
def taken(monkeypatch):
    """What computed each attention since."""
    calls = []
    fused, dense = cpu.fused_attention, op.dense_attention
    monkeypatch.setattr(cpu, "LEAST_QUERIES", 1)
    monkeypatch.setattr(cpu, "fused_attention", lambda *args: calls.append("fused") or fused(*args))
    monkeypatch.setattr(op, "dense_attention", lambda *args: calls.append("dense") or dense(*args))
    return calls


@native
@pytest.mark.parametrize(
    "flags, kind", [("", "fused"), ("auto", "fused"), ("fused", "fused"), ("dense", "dense")]
)
def test_the_backend_that_is_asked_for(flags, kind, taken):
    model = build(f"--attention-backend {flags}" if flags else "")
    value = loss(model, batch())
    assert taken == [kind] * 6
    torch.testing.assert_close(value, loss(build("--attention-backend dense"), batch()), **MODEL_TOLERANCE)


def test_unknown_backends_are_refused():
    with pytest.raises(UserError, match=r"--attention-backend 'flash': choose from auto, fused, dense"):
        parse("--attention-backend flash")
    for value in (3, "", True):  # as YAML may give it
        with pytest.raises(UserError, match="--attention-backend"):
            attention_backend(SimpleNamespace(attention_backend=value))
    assert attention_backend(SimpleNamespace()) == "auto"  # a checkpoint from before there was the flag


def test_fused_is_refused_where_there_are_no_fused_kernels(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("ENTMAX_BACKEND", "reference")
    with pytest.raises(
        UserError, match=r"fused: the fused kernel for the CPU .* compiler.* ENTMAX_BACKEND .* auto"
    ):
        build("--attention-backend fused")
    build("--attention-backend auto")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError, match=r"fused: fused kernels for cuda need .* triton"):
        build("--attention-backend fused")


def outputs(model):
    sample = batch()
    return model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])[1]["attn"][0]


def test_weights_are_discarded_in_training_by_fairseq_and_its_validation():
    model = build().train()
    assert outputs(model) is not None  # of a loop of one's own
    model.after_update(1)
    assert outputs(model) is None
    assert outputs(model.eval()) is None
    loaded = build()
    loaded.set_num_updates(1)  # as when a checkpoint is loaded to translate
    assert outputs(loaded.eval()) is not None


def test_weights_are_there_where_alignment_is_trained():
    task = translation_task()
    task.cfg = SimpleNamespace(load_alignments=True)
    model = ARCH_MODEL_REGISTRY[ARCH].build_model(parse(SMALL, ARCH), task).train()
    model.after_update(1)
    assert outputs(model) is not None


def test_only_the_weights_that_are_returned_are_computed(monkeypatch):
    asked = []
    attention = op.dense_attention
    monkeypatch.setattr(op, "dense_attention", lambda *args: asked.append(args[-1]) or attention(*args))
    model = build("--attention-backend dense").eval()
    outputs(model)
    assert asked == [False] * 5 + [True]
    model.make_generation_fast_(need_attn="hard")  # as under --print-alignment
    outputs(model)
    assert asked == ([False] * 5 + [True]) * 2
