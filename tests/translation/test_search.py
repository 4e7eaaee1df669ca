"""Batches of sentences as fairseq makes them."""

from __future__ import annotations

import numpy as np
import pytest
from fairseq.data.data_utils import batch_by_size

from user_dir.translation.search import batches_by_length


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_those_of_fairseq(seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(2, random.choice([4, 30, 200]), size=random.choice([1, 2, 60, 300]))
    most = int(max(lengths.max(), random.integers(2, 500)))
    order = np.argsort(lengths, kind="stable")
    expected = batch_by_size(order, None, lengths[order], most)
    assert list(batches_by_length(lengths.tolist(), most)) == [batch.tolist() for batch in expected]
