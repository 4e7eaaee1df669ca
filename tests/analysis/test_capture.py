"""The interface to models: captured attention, losses, masked heads, and the batches of a split."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import editors
import numpy as np
import pytest
import torch
from examples import all_heads
from fairseq.data import LanguagePairDataset
from helpers import batch, build, dictionary, loss

from user_dir.analysis.capture import (
    Split,
    captured_attention,
    masked_heads,
    negative_log_likelihood,
    possible_pairs,
)
from user_dir.entmax import entmax_loss
from user_dir.errors import UserError

HEADS = [("encoder_self", 1, 3), ("decoder_self", 0, 0), ("decoder_context", 1, 1)]


def output(model, sample) -> torch.Tensor:
    with torch.no_grad():
        return model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])[0]


def module(model, attention: str, layer: int):
    side, name = {
        "encoder_self": (model.encoder, "self_attn"),
        "decoder_self": (model.decoder, "self_attn"),
        "decoder_context": (model.decoder, "encoder_attn"),
    }[attention]
    return getattr(side.layers[layer], name)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "masked",
    [HEADS[:1], HEADS[1:2], HEADS[2:], HEADS, [("encoder_self", 0, 0), ("encoder_self", 1, 0), HEADS[0]]],
)
def test_masking_a_head_equals_removing_its_columns_of_the_output_projection(masked, shared):
    """Of its own attention alone, although others may share the projection."""
    model, sample = build().eval(), batch()
    if shared:
        model = editors.build("--share-self-attention --tie-context-attention").eval()
        sample = editors.batch()
    whole, heads = output(model, sample), set(all_heads(model))
    assert len(heads) == (3 * 2 * 4 if shared else 2 * 4 + 2 * 2 + 2 * 2) and set(masked) < heads
    with masked_heads(model, masked):
        without = output(model, sample)
    assert torch.equal(output(model, sample), whole), "the model is not as it was"
    assert not torch.allclose(without, whole)
    for kind, layer, head in masked:
        attention = module(model, kind, layer)
        attention.out_proj, size = copy.deepcopy(attention.out_proj), attention.head_dim
        attention.out_proj.weight.data[:, head * size : (head + 1) * size] = 0
    assert torch.allclose(output(model, sample), without, rtol=1e-12, atol=1e-12)


def test_hooks_are_removed_after_an_error():
    model, sample = build().eval(), batch()
    whole = output(model, sample)
    with pytest.raises(ZeroDivisionError), masked_heads(model, HEADS), captured_attention(model):
        raise ZeroDivisionError
    assert torch.equal(output(model, sample), whole)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_loss_is_cross_entropy_over_real_tokens():
    model, sample = build().eval(), batch()
    inputs = {name: sample[name] for name in ("src_tokens", "src_lengths", "prev_output_tokens")}
    with torch.no_grad():
        total, tokens = negative_log_likelihood(
            model, {"net_input": inputs, "target": sample["target"]}, dictionary().pad()
        )
        expected = float(loss(model, sample))
    assert tokens == 6 + 3 + 5
    assert total == pytest.approx(expected, rel=1e-6)  # fairseq computes log p in float32


@pytest.mark.parametrize("left_pad", [True, False])
def test_weights_are_captured_for_existing_pairs(left_pad):
    model, sample = build().eval(), batch(left_pad)
    with captured_attention(model) as captured:
        output(model, sample)
    pairs = possible_pairs({"net_input": sample}, dictionary().pad())
    for attention, layers in captured.items():
        for weights in layers:
            possible = pairs[attention][:, None].expand_as(weights)
            sums = weights.masked_fill(~possible, 0).sum(-1)
            real = possible.any(-1)
            assert torch.allclose(sums[real], torch.ones_like(sums[real]), atol=1e-6)


def test_the_loss_of_a_sparse_output_is_finite():
    model, sample = build("--output-alpha 1.5").eval(), batch()
    target = sample.pop("target")
    pad = dictionary().pad()
    total, tokens = negative_log_likelihood(model, {"net_input": sample, "target": target}, pad)
    expected = entmax_loss(output(model, sample), target, 1.5, ignore_index=pad).sum().item()
    assert total == pytest.approx(expected) and tokens == 14


class FakeTask:
    """A task with one synthetic split: sentence i has sizes[i] tokens on both sides."""

    def __init__(self, sizes: list[int]):
        words = dictionary()
        sentences = [torch.tensor([4 + i % 9] * (size - 1) + [words.eos()]) for i, size in enumerate(sizes)]
        self.datasets = {
            "valid": LanguagePairDataset(
                sentences, np.array(sizes), words, sentences, np.array(sizes), words, shuffle=True
            )
        }

    def dataset(self, subset):
        return self.datasets[subset]


SIZES = [5, 3, 9, 3, 7, 2, 8, 8, 1]


def split_of(sizes=SIZES, positions: int = 1024, **limits) -> Split:
    parameter = torch.zeros(1)
    model = SimpleNamespace(max_positions=lambda: (positions,) * 2, parameters=lambda: iter([parameter]))
    return Split(None, None, "valid", "valid", model, FakeTask(sizes), **limits)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("max_tokens", [9, 16, 1000])
@pytest.mark.parametrize("sentences", [None, 4])
def test_batches_have_every_sentence_once_within_max_tokens(in_order, max_tokens, sentences):
    samples = list(split_of(sentences=sentences, max_tokens=max_tokens).samples(in_order=in_order))
    ids = [i for sample in samples for i in sample["id"].tolist()]
    assert sorted(ids) == list(range(sentences or len(SIZES)))
    assert all(sample["net_input"]["src_tokens"].numel() <= max_tokens for sample in samples)
    if in_order:
        ordered = [i for sample in samples for i in sorted(sample["id"].tolist())]
        assert ordered == sorted(ids)


def test_sentences_that_are_too_long_are_named():
    with pytest.raises(UserError, match="--max-tokens 8 is too small for line 3 of valid, which has 9"):
        list(split_of(max_tokens=8).samples())
    with pytest.raises(UserError, match="3 of valid: up to 9 source tokens, but the model allows 8"):
        list(split_of(positions=8).samples())
    assert list(split_of(positions=8, sentences=2).samples())
    with pytest.raises(UserError, match="valid has no sentences"):
        list(split_of([]).samples())
