"""The post-editor against BERT as encoder and decoder in plain torch, with every way of sharing."""

import pytest
import torch
from editors import (
    SOFTMAX,
    batch,
    build,
    dictionary,
    loss,
    negative_log_likelihood,
    oracle_logits,
    task,
)
from helpers import MODEL_TOLERANCE
from invariants import assert_steps_equal_the_whole

from user_dir.errors import UserError

SHARING = ("--share-self-attention", "--tie-context-attention", "--share-feed-forward")


def assert_near(actual, expected):
    torch.testing.assert_close(actual, expected, **MODEL_TOLERANCE)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("left_pad", [False, True])
def test_softmax_with_nothing_shared_equals_bert_in_plain_torch(left_pad, drop):
    model, sample = build(SOFTMAX + " --drop-sep" * drop), batch(left_pad)
    parameters = list(model.parameters())
    logits, _ = model(sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"])
    expected = oracle_logits(model, sample, drop=drop)
    real = sample["target"].ne(dictionary().pad())
    assert_near(logits[real], expected[real])
    gradients = torch.autograd.grad(loss(model, sample), parameters, allow_unused=True)
    theirs = torch.autograd.grad(
        negative_log_likelihood(expected, sample["target"]), parameters, allow_unused=True
    )
    padding = dictionary().pad()
    for parameter, ours, other in zip(parameters, gradients, theirs):
        assert (ours is None) == (other is None)
        if parameter is model.encoder.embed_tokens.weight:
            ours[padding] = other[padding]  # of the output layer only
        assert_near(ours, other)


@pytest.mark.parametrize("flags", [[flag] for flag in SHARING] + [[*SHARING]])
def test_each_flag_shares_what_it_says(flags):
    """Shared parameters count once, and their gradient is the sum of those of an unshared model."""
    sample = batch()
    shared, apart = build(" ".join([SOFTMAX, *flags])), build(SOFTMAX)
    apart.load_state_dict(shared.state_dict())
    assert_near(loss(shared, sample), loss(apart, sample))
    loss(shared, sample).backward()
    loss(apart, sample).backward()
    attention, feed_forward = 2 * 4 * (16 * 16 + 16), 2 * (2 * 16 * 24 + 16 + 24)
    fewer = sum(attention for flag in flags if "attention" in flag)
    fewer += feed_forward if SHARING[2] in flags else 0
    assert count(apart) - count(shared) == fewer

    groups: dict[int, list[str]] = {}
    for name, parameter in shared.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    ours = dict(shared.named_parameters(remove_duplicate=False))
    theirs = dict(apart.named_parameters(remove_duplicate=False))
    for names in groups.values():
        distinct = {id(theirs[name]): theirs[name] for name in names}.values()
        assert_near(ours[names[0]].grad, sum(parameter.grad for parameter in distinct))


def count(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("flags", ["", "--share-self-attention"])
def test_context_attention_starts_from_self_attention(flags):
    default, other = build(flags), build(f"{flags} --context-init random")
    for model, same in ((default, True), (other, False)):
        for layer in model.decoder.layers:
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                ours, its = getattr(layer.encoder_attn, name).weight, getattr(layer.self_attn, name).weight
                assert torch.equal(ours, its) == same
                assert ours is not its


@pytest.mark.parametrize("flags", ["", "--drop-sep --share-self-attention"])
def test_incremental_decoding_equals_teacher_forcing(flags):
    assert_steps_equal_the_whole(build(flags).eval(), batch())


def test_the_penalty_is_for_pieces_that_are_not_in_the_input():
    sample = batch()
    model = build().eval()
    inputs = sample["src_tokens"], sample["src_lengths"], sample["prev_output_tokens"]
    without = model(*inputs)[0]
    model.decoder.new_piece_penalty = 2.0
    change = without - model(*inputs)[0]
    for row, source in zip(change, sample["src_tokens"].tolist()):
        for token in range(len(dictionary())):
            known = token in source or token == dictionary().eos()
            assert_near(row[:, token], torch.full_like(row[:, token], 0.0 if known else 2.0))
    model.train()
    assert_near(model(*inputs)[0], without)


def test_the_model_without_separator_is_refused():
    words = dictionary(["a", "b"])
    with pytest.raises(UserError, match=r"the dictionary has no \[SEP\]; prepare the triplets"):
        build(own_task=task(words))
    words.add_symbol("[SEP]")
    assert build(own_task=task(words)).encoder.separator == words.index("[SEP]")


def test_two_dictionaries_are_refused():
    with pytest.raises(UserError, match="source and target have different dictionaries"):
        build(own_task=task(dictionary(), dictionary(["▁[SEP]", "x"])))
