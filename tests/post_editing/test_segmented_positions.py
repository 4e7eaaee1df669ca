"""Positions that start again and segments, against counting token by token."""

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
    module = SegmentedPositions(8, 4, PAD, separator)
    longest = max(map(len, ROWS))
    padded = [[PAD] * (longest - len(row)) * left + row for row in ROWS]
    tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row in padded])
    found = module(tokens)
    assert torch.equal(module(tokens, {}), found[:, -1:])
    for row, source, embedded in zip(ROWS, tokens, found):
        place, segment, expected = 0, 0 if separator else 1, []
        for token in row:
            expected.append(module.positions.weight[place] + module.segments.weight[segment])
            place += 1
            if token == separator and segment == 0:
                place, segment = 0, 1
        assert torch.equal(embedded[source.ne(PAD)], torch.stack(expected))


def test_shared_tables():
    encoder, decoder = SegmentedPositions(8, 4, PAD, SEP), SegmentedPositions(8, 4, PAD)
    decoder.share(encoder)
    assert decoder.positions is encoder.positions and decoder.segments is encoder.segments
    assert sum(parameter.numel() for parameter in torch.nn.ModuleList([encoder, decoder]).parameters()) == 40
