"""fairseq drops sentences that do not fill the last batch.

``data_utils.batch_by_size`` drops the last batch if its size is not a multiple of
``--required-batch-size-multiple``, which is 8 by default (0.12.2 and later; fairseq's issue 5036), so that
461 test sentences give 456 translations. ``--grouped-shuffling`` drops batches that do not fill a group of
one batch per worker. Unnecessary once fairseq keeps both.
"""

from __future__ import annotations

import functools
import inspect

import numpy as np
from fairseq.data import data_utils
from fairseq.data.iterators import EpochBatchIterator

from .announcing import acted


def install() -> None:
    """Keep the last batch and the last group; all other batches are fairseq's."""
    batch_by_size = data_utils.batch_by_size
    signature = inspect.signature(batch_by_size)
    ordered_batches = EpochBatchIterator.ordered_batches

    @functools.wraps(batch_by_size)
    def batch_all_by_size(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        if given.arguments["fixed_shapes"] is not None:
            return batch_by_size(*given.args, **given.kwargs)
        indices = given.arguments["indices"]
        if not isinstance(indices, np.ndarray):
            indices = given.arguments["indices"] = np.fromiter(indices, dtype=np.int64, count=-1)
        if not len(indices):
            return []  # fairseq would access the last batch
        batches = list(batch_by_size(*given.args, **given.kwargs))
        kept = sum(map(len, batches))  # batches are consecutive parts of the indices
        if kept == len(indices):
            return batches
        acted("last-batches", "keeps the sentences that do not fill the last batch")
        return [*batches, indices[kept:]]

    @functools.wraps(ordered_batches)
    def order_all_batches(self, *args, **kwargs):
        if self.grouped_shuffling and len(self.frozen_batches) % self.num_shards:
            acted("last-batches", "keeps the batches that do not fill the last group")
            # fairseq gives an empty batch to a worker for which none is left.
            self._frozen_batches = (
                *self.frozen_batches,
                *([[]] * (-len(self.frozen_batches) % self.num_shards)),
            )
        return ordered_batches(self, *args, **kwargs)

    data_utils.batch_by_size = batch_all_by_size
    EpochBatchIterator.ordered_batches = order_all_batches
