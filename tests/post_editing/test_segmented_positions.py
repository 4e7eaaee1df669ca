"""Positions that start again and segments, against counting token by token."""

from types import SimpleNamespace

import pytest
import torch

from user_dir.post_editing.bert import SegmentedPositions

PAD, SEP = 1, 9
ROWS = [
    [5, 6, SEP, 7, 8, 4],
    [SEP, 5],  # nothing before the separator
    [5, 6, 7, 8],  # no separator
    [5, SEP, 6, SEP, 7],  # only the first one separates
    [SEP],
]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("separator", [SEP, None])
def test_equals_counting(left, separator):
    cfg = SimpleNamespace(max_source_positions=8, max_target_positions=8)
    module = SegmentedPositions(cfg, torch.nn.Embedding(10, 4, PAD), separator)
    longest = max(map(len, ROWS))
    padded = [[PAD] * (longest - len(row)) * left + row for row in ROWS]
    tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row in padded])
    embeddings = module(tokens)
    assert torch.equal(module(tokens, {}), embeddings[:, -1:])
    for row, source, embedded in zip(ROWS, tokens, embeddings):
        place, segment, expected = 0, 0 if separator else 1, []
        for token in row:
            expected.append(module.positions.weight[place] + module.segments.weight[segment])
            place += 1
            if token == separator and segment == 0:
                place, segment = 0, 1
        assert torch.equal(embedded[source.ne(PAD)], torch.stack(expected))
