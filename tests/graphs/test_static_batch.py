"""Batches in buffers of another shape: each position, and what a batch before left there."""

import pytest
import torch
from helpers import batch

from user_dir.graphs.static_batch import StaticBatch, shape_of, unknown_entry

PAD, EOS = 1, 2


def sample(rows=3, left=True, **more) -> dict:
    inputs = {name: each[:rows] for name, each in batch(left).items()}
    return {"target": inputs.pop("target"), "net_input": inputs, "ntokens": 14, "nsentences": rows, **more}


def filled(given, shape, left):
    sides = frozenset({"src_tokens"} if left else ())
    static = StaticBatch(given, shape, PAD, EOS, sides)
    for each in static.tokens.values():
        each.fill_(17)
    static.fill(given)
    return static


@pytest.mark.parametrize("left", [True, False])
def test_words_stay_and_the_rest_is_padding(left):
    given = sample(left=left)
    static = filled(given, (5, 9, 8), left)
    found, words = static.sample["net_input"], given["net_input"]
    assert found["src_tokens"].shape == (5, 9) and static.sample["target"].shape == (5, 8)
    place = slice(2, 9) if left else slice(0, 7)
    assert torch.equal(found["src_tokens"][:3, place], words["src_tokens"])
    assert torch.equal(found["prev_output_tokens"][:3, :6], words["prev_output_tokens"])
    assert torch.equal(static.sample["target"][:3, :6], given["target"])
    for name in ("src_tokens", "prev_output_tokens"):
        assert found[name].ne(PAD).sum() == words[name].ne(PAD).sum() + 2, "one word in each of two rows"
    assert static.sample["target"].ne(PAD).sum() == given["target"].ne(PAD).sum()
    assert found["src_tokens"][3:, -1 if left else 0].tolist() == [EOS, EOS]
    assert found["prev_output_tokens"][3:, 0].tolist() == [EOS, EOS]
    assert found["src_lengths"].tolist() == [7, 5, 2, 1, 1]


def test_nothing_of_the_batch_before_is_left():
    static = filled(sample(), (3, 7, 6), True)
    places = {name: each.data_ptr() for name, each in static.tokens.items()}
    static.fill(sample(rows=1))
    alone = filled(sample(rows=1), (3, 7, 6), True)
    for name, each in static.tokens.items():
        assert torch.equal(each, alone.tokens[name]) and each.data_ptr() == places[name]
    assert torch.equal(static.lengths, alone.lengths)


def test_a_language_model_has_one_side():
    given = sample(left=False)
    given["net_input"] = {"src_tokens": given["target"], "src_lengths": torch.tensor([6, 3, 5])}
    assert shape_of(given) == (3, 6) and shape_of(sample()) == (3, 7, 6)
    assert filled(given, (4, 7), False).sample["net_input"]["src_tokens"][3].tolist() == [EOS, *[PAD] * 6]


def test_batches_with_more_are_not_padded():
    assert unknown_entry(sample()) is None
    assert "alignments" in unknown_entry(sample(alignments=torch.zeros(2)))
    assert "target" in unknown_entry({**sample(), "target": None})
    more = sample()
    more["net_input"]["src_lang_id"] = torch.zeros(3, 1)
    assert "src_lang_id" in unknown_entry(more)
    del more["net_input"]["src_lang_id"], more["net_input"]["src_tokens"]
    assert "src_tokens" in unknown_entry(more)
