"""fairseq drops sentences that do not fill the last batch.

``data_utils.batch_by_size`` drops the last batch if its size is not a multiple of
``--required-batch-size-multiple``, which is 8 by default (0.12.2 and later; fairseq's issue 5036), so that
461 test sentences give 456 translations. ``--grouped-shuffling`` drops batches that do not fill a group of
one batch per worker. Unnecessary once fairseq keeps both.
"""

import numpy as np
from fairseq.data import data_utils
from fairseq.data.iterators import EpochBatchIterator

from .announcing import acted
from .installing import around


@around(data_utils, "batch_by_size")
def batch_by_size(batch, indices, *args, **kwargs):
    """Keep the last batch; all others are fairseq's."""
    if kwargs.get("fixed_shapes") is not None:
        return batch(indices, *args, **kwargs)
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64, count=-1)
    if not len(indices):
        return []  # fairseq would access the last batch
    batches = list(batch(indices, *args, **kwargs))
    kept = sum(map(len, batches))  # batches are consecutive parts of the indices
    if kept == len(indices):
        return batches
    acted("last-batches", "keeps the sentences that do not fill the last batch")
    return [*batches, indices[kept:]]


@around(EpochBatchIterator, "ordered_batches")
def ordered_batches(order, self, *args, **kwargs):
    """Keep the last group; fairseq gives an empty batch to a worker for which none is left."""
    missing = -len(self.frozen_batches) % self.num_shards
    if self.grouped_shuffling and missing:
        acted("last-batches", "keeps the batches that do not fill the last group")
        self._frozen_batches = (*self.frozen_batches, *([[]] * missing))
    return order(self, *args, **kwargs)
