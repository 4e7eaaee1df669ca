"""Shapes: every batch fits one, few are needed, and padding stays within its bound."""

from types import SimpleNamespace

import numpy as np
import pytest

from user_dir.graphs.shapes import MOST_PADDING, MOST_SHAPES, choose, fitting, shapes_of


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
    found, start = [], 0
    for end in range(1, len(order) + 1):
        rows = order[start : end + 1]
        if end == len(order) or lengths[rows].max() * len(rows) > most_tokens:
            found.append(order[start:end])
            start = end
    return found


def sizes(lengths, found) -> list[tuple]:
    return [(len(batch), *lengths[batch].max(0).tolist()) for batch in found]


def tokens(shape) -> int:
    return shape[0] * sum(shape[1:])


@pytest.mark.parametrize("most_tokens", [500, 4000])
@pytest.mark.parametrize("sides", [1, 2])
def test_every_batch_fits_and_padding_is_bounded(most_tokens, sides):
    lengths = sentences(6000)[:, :sides]
    found = batches(lengths, most_tokens)
    shapes = shapes_of(SimpleNamespace(sizes=lengths if sides == 2 else lengths[:, 0]), found)
    given = sizes(lengths, found)
    padded = [fitting(shapes, each) for each in given]
    assert all(shape is not None and min(np.subtract(shape, each)) >= 0 for shape, each in zip(padded, given))
    assert sum(map(tokens, padded)) <= (1 + MOST_PADDING) * sum(map(tokens, given))
    assert 1 < len(shapes) <= MOST_SHAPES and len(shapes) < len(set(given)) / 2
    assert set(padded) == set(shapes), "a shape without batches"


def test_where_few_shapes_are_too_few_batches_are_left_out():
    lengths = sentences(6000)
    given = sizes(lengths, batches(lengths, 500))
    shapes = choose(np.array(given), most=15)
    padded = [(shape, each) for each in given if (shape := fitting(shapes, each, padding=0.3)) is not None]
    assert 0 < len(shapes) < 15 and 0 < len(padded) < len(given)
    assert all(tokens(shape) <= 1.3 * tokens(each) for shape, each in padded)


def test_batches_of_one_shape_have_one():
    assert choose(np.array([(8, 5, 6)] * 3)) == [(8, 5, 6)]


def test_the_smallest_shape_that_fits():
    shapes = [(4, 4, 4), (8, 4, 5), (4, 9, 9)]
    assert fitting(shapes, (4, 4, 4)) == (4, 4, 4)
    assert fitting(shapes, (5, 3, 5)) == (8, 4, 5)
    assert fitting(shapes, (4, 5, 4)) == (4, 9, 9)
    assert fitting(shapes, (9, 1, 1)) is fitting(shapes, (4, 10, 1)) is None
    assert fitting(shapes, (1, 5, 5)) is None, "most of it would be padding"
    assert fitting(shapes, (4, 4)) is None, "another number of sides"


@pytest.mark.parametrize("lengths", [None, [3, 4], np.zeros((2, 2, 2))])
def test_a_dataset_that_does_not_tell_its_lengths(lengths):
    assert shapes_of(SimpleNamespace(sizes=lengths), [[0, 1]]) == []
    assert shapes_of(SimpleNamespace(), [[0, 1]]) == []


def test_no_batches():
    assert shapes_of(SimpleNamespace(sizes=np.array([3])), [[]]) == []
