"""Shapes: every batch fits one, few are needed, padding is bounded; batches in buffers of these shapes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import batch

from user_dir.graphs.shapes import (
    MOST_PADDING,
    MOST_SHAPES,
    StaticBatch,
    choose,
    fitting,
    shape_of,
    shapes_of,
    unknown_entry,
)

PAD, EOS = 1, 2


def sentences(number: int, seed: int = 0) -> np.ndarray:
    """Lengths of pairs, distributed about as those of subtitles."""
    random = np.random.default_rng(seed)
    source = np.exp(random.normal(3.0, 0.6, size=number)).clip(2, 150).astype(int)
    return np.stack(
        [source, (source * np.exp(random.normal(0, 0.15, size=number))).clip(2, 150).astype(int)], 1
    )


def batches(lengths: np.ndarray, most_tokens: int) -> list[np.ndarray]:
    """Sentences of similar length, as many as fit."""
    order = np.lexsort(lengths.T[::-1])
    groups, start = [], 0
    for end in range(1, len(order) + 1):
        rows = order[start : end + 1]
        if end == len(order) or lengths[rows].max() * len(rows) > most_tokens:
            groups.append(order[start:end])
            start = end
    return groups


def sizes(lengths, groups) -> list[tuple]:
    return [(len(group), *lengths[group].max(0).tolist()) for group in groups]


def tokens(shape) -> int:
    return shape[0] * sum(shape[1:])


@pytest.mark.parametrize("most_tokens", [500, 4000])
@pytest.mark.parametrize("sides", [1, 2])
def test_every_batch_fits_and_padding_is_bounded(most_tokens, sides):
    lengths = sentences(6000)[:, :sides]
    groups = batches(lengths, most_tokens)
    shapes = shapes_of(SimpleNamespace(sizes=lengths if sides == 2 else lengths[:, 0]), groups)
    exact = sizes(lengths, groups)
    padded = [fitting(shapes, size) for size in exact]
    assert all(shape is not None and min(np.subtract(shape, size)) >= 0 for shape, size in zip(padded, exact))
    assert sum(map(tokens, padded)) <= (1 + MOST_PADDING) * sum(map(tokens, exact))
    assert 1 < len(shapes) <= MOST_SHAPES and len(shapes) < len(set(exact)) / 2
    assert set(padded) == set(shapes), "a shape without batches"


def test_where_few_shapes_are_too_few_batches_are_left_out():
    lengths = sentences(6000)
    exact = sizes(lengths, batches(lengths, 500))
    shapes = choose(np.array(exact), most=15)
    padded = [(shape, size) for size in exact if (shape := fitting(shapes, size, padding=0.3)) is not None]
    assert 0 < len(shapes) < 15 and 0 < len(padded) < len(exact)
    assert all(tokens(shape) <= 1.3 * tokens(size) for shape, size in padded)


def test_the_smallest_shape_that_fits():
    shapes = [(4, 4, 4), (8, 4, 5), (4, 9, 9)]
    assert fitting(shapes, (4, 4, 4)) == (4, 4, 4)
    assert fitting(shapes, (5, 3, 5)) == (8, 4, 5)
    assert fitting(shapes, (4, 5, 4)) == (4, 9, 9)
    assert fitting(shapes, (9, 1, 1)) is fitting(shapes, (4, 10, 1)) is None
    assert fitting(shapes, (1, 5, 5)) is None, "most of it would be padding"


def test_no_shapes():
    assert shapes_of(SimpleNamespace(), [[0, 1]]) == []  # a dataset that does not tell its lengths
    assert shapes_of(SimpleNamespace(sizes=np.array([3])), [[]]) == []


def sample(rows=3, left=True, **more) -> dict:
    inputs = {name: tensor[:rows] for name, tensor in batch(left).items()}
    return {"target": inputs.pop("target"), "net_input": inputs, "ntokens": 14, "nsentences": rows, **more}


def filled(unpadded, shape, left):
    sides = frozenset({"src_tokens"} if left else ())
    static = StaticBatch(unpadded, shape, PAD, EOS, sides)
    for tensor in static.tokens.values():
        tensor.fill_(17)
    static.fill(unpadded)
    return static


@pytest.mark.parametrize("left", [True, False])
def test_words_stay_and_the_rest_is_padding(left):
    unpadded = sample(left=left)
    static = filled(unpadded, (5, 9, 8), left)
    padded, words = static.sample["net_input"], unpadded["net_input"]
    assert padded["src_tokens"].shape == (5, 9) and static.sample["target"].shape == (5, 8)
    place = slice(2, 9) if left else slice(0, 7)
    assert torch.equal(padded["src_tokens"][:3, place], words["src_tokens"])
    assert torch.equal(padded["prev_output_tokens"][:3, :6], words["prev_output_tokens"])
    assert torch.equal(static.sample["target"][:3, :6], unpadded["target"])
    for name in ("src_tokens", "prev_output_tokens"):
        assert padded[name].ne(PAD).sum() == words[name].ne(PAD).sum() + 2, "one word in each of two rows"
    assert static.sample["target"].ne(PAD).sum() == unpadded["target"].ne(PAD).sum()
    assert padded["src_tokens"][3:, -1 if left else 0].tolist() == [EOS, EOS]
    assert padded["prev_output_tokens"][3:, 0].tolist() == [EOS, EOS]
    assert padded["src_lengths"].tolist() == [7, 5, 2, 1, 1]


def test_nothing_of_the_batch_before_is_left():
    static = filled(sample(), (3, 7, 6), True)
    places = {name: tensor.data_ptr() for name, tensor in static.tokens.items()}
    static.fill(sample(rows=1))
    alone = filled(sample(rows=1), (3, 7, 6), True)
    for name, tensor in static.tokens.items():
        assert torch.equal(tensor, alone.tokens[name]) and tensor.data_ptr() == places[name]
    assert torch.equal(static.lengths, alone.lengths)


def test_a_language_model_has_one_side():
    unpadded = sample(left=False)
    unpadded["net_input"] = {"src_tokens": unpadded["target"], "src_lengths": torch.tensor([6, 3, 5])}
    assert shape_of(unpadded) == (3, 6) and shape_of(sample()) == (3, 7, 6)
    assert filled(unpadded, (4, 7), False).sample["net_input"]["src_tokens"][3].tolist() == [EOS, *[PAD] * 6]


def test_batches_with_more_are_not_padded():
    assert unknown_entry(sample()) is None
    assert "alignments" in unknown_entry(sample(alignments=torch.zeros(2)))
