"""The batches of a split: every sentence once, within the limits of the model and of the command."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.data import LanguagePairDataset
from helpers import dictionary

from user_dir.analysis.split import Split
from user_dir.errors import UserError


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
    found = list(split_of(sentences=sentences, max_tokens=max_tokens).samples(in_order=in_order))
    ids = [i for sample in found for i in sample["id"].tolist()]
    assert sorted(ids) == list(range(sentences or len(SIZES)))
    assert all(sample["net_input"]["src_tokens"].numel() <= max_tokens for sample in found)
    if in_order:
        ordered = [i for sample in found for i in sorted(sample["id"].tolist())]
        assert ordered == sorted(ids)
    if max_tokens == 1000:
        assert len(found) == 1


def test_sentences_that_are_too_long_are_named():
    with pytest.raises(UserError, match="--max-tokens 8 is too small for line 3 of valid, which has 9"):
        list(split_of(max_tokens=8).samples())
    with pytest.raises(UserError, match="line 3 of valid has 9 source tokens, but the model allows 8"):
        list(split_of(positions=8).samples())
    assert list(split_of(positions=8, sentences=2).samples())
    with pytest.raises(UserError, match="valid has no sentences"):
        list(split_of([]).samples())
