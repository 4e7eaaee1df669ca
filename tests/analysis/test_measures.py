"""The measures on small weights with known results; loops over whole splits are in test_statistics."""

from __future__ import annotations

import math

import pytest
import torch

from user_dir.analysis import measures


def test_support_counts_exact_zeros_only():
    weights = torch.tensor([[[[1.0, 0.0], [1 - 1e-30, 1e-30]]]], dtype=torch.float64)
    attended, pairs = measures.support(weights, torch.tensor([[[True, False], [True, True]]]))
    assert (attended.tolist(), pairs.tolist()) == ([[3]], [3])


def test_entropy_of_a_uniform_query_is_log_of_its_keys():
    weights = torch.tensor([[[[0.25] * 4, [1.0, 0, 0, 0]]]])
    assert measures.entropy(weights).tolist() == [[[pytest.approx(math.log(4)), 0.0]]]


@pytest.mark.parametrize("heads", [2, 3, 8])
def test_diversity_is_1_for_disjoint_heads_and_0_for_identical_heads(heads):
    apart = torch.eye(heads, dtype=torch.float64)[None, :, None, :]  # each head attends to another key
    assert measures.diversity(apart).item() == pytest.approx(1)
    assert measures.diversity(apart[:, :1].expand(-1, heads, -1, -1)).item() == pytest.approx(0)


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_weight_at_offset_uses_positions_in_the_sentence(offset):
    """With right-padded queries and left-padded keys, positions count from the first real token."""
    query, key = torch.tensor([[0, 1, 2, -1]]), torch.tensor([[-1, 0, 1]])
    possible = (query >= 0)[:, :, None] & (key >= 0)[:, None, :]
    weights = torch.arange(12.0).view(1, 1, 4, 3)
    values, there = measures.weight_at_offset(weights, query, key, possible, offset)
    expected = {
        -1: ([False, True, True, False], [4, 8]),
        0: ([True, True, False, False], [1, 5]),
        1: ([True, False, False, False], [2]),
    }[offset]
    assert there[0].tolist() == expected[0]
    assert values[0, 0][there[0]].tolist() == expected[1]


def test_subword_merging_uses_the_best_piece_of_each_word():
    word = torch.tensor([[0, 0, 0, 1, -1]])
    weights = torch.tensor(
        [
            [0.5, 0.1, 0.1, 0.3, 0.0],  # 0.2 on the others
            [0.3, 0.0, 0.4, 0.3, 0.0],  # 0.7
            [0.0, 0.0, 1.0, 0.0, 0.0],  # 0
            [0.2, 0.2, 0.0, 0.6, 0.0],  # a word of one piece: 0.6 on itself
            [0.0, 0.0, 0.0, 0.0, 1.0],  # </s> is not a word
        ],
        dtype=torch.float64,
    )[None, None]
    merged, pieces = measures.subword_merging(weights, word)
    assert merged[0, 0].tolist() == pytest.approx([0.7, 0.6])
    assert pieces.tolist() == [[3, 1]]
    inside, counted = measures.mass_in_word(weights, word)
    assert counted.tolist() == [[True] * 4 + [False]]
    assert inside[0, 0, :4].tolist() == pytest.approx([0.7, 0.7, 1.0, 0.6])


def test_sentences_without_words_merge_nothing():
    merged, pieces = measures.subword_merging(torch.ones(2, 3, 1, 1), torch.full((2, 1), -1))
    assert merged.shape == (2, 3, 0)
    assert pieces.shape == (2, 0)
