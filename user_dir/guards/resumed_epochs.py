"""A training resumed in epoch 2 or later sees some sentences twice and others not at all.

fairseq (0.12.2 and later) makes the batches once per process, seeded by ``--seed`` plus the epoch in which
the process starts, and keeps them for all following epochs. A training resumed in epoch 2 has different
batches from those whose first part it has already seen. ``--update-epoch-batch-itr True`` avoids this by
making new batches in each epoch, which also changes a training that is never stopped. Unnecessary once
fairseq seeds kept batches by ``--seed`` alone.

fairseq also keeps the first epoch's decision whether to shuffle batches (fairseq-fixed 0.12.3.1), so that
``--curriculum`` lasts until a training is resumed.
"""

from __future__ import annotations

import functools
import inspect

from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks.fairseq_task import FairseqTask

from .announcing import acted


def install() -> None:
    """Make kept batches as in epoch 1, which is what an uninterrupted training does."""
    get_batch_iterator = FairseqTask.get_batch_iterator
    signature = inspect.signature(get_batch_iterator)
    iterator_for_epoch = EpochBatchIterator._get_iterator_for_epoch

    @functools.wraps(get_batch_iterator)
    def get_same_batch_iterator(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        settings = given.arguments
        task, dataset, epoch = settings["self"], settings["dataset"], settings["epoch"]
        fresh = settings["disable_iterator_cache"] or settings.get("update_epoch_batch_itr")
        known = fresh or dataset in task.dataset_to_epoch_iter
        if epoch <= 1 or known or not task.can_reuse_epoch_itr(dataset):
            return get_batch_iterator(*given.args, **given.kwargs)
        acted("resumed-epochs", "makes the batches of a resumed run as those of epoch 1")
        settings["epoch"] = 1
        iterator = get_batch_iterator(*given.args, **given.kwargs)
        dataset.set_epoch(epoch)
        iterator.epoch = epoch
        return iterator

    @functools.wraps(iterator_for_epoch)
    def shuffled_iterator_for_epoch(self, epoch, shuffle, *args, **kwargs):
        sampler = getattr(self, "epoch_batch_sampler", None)
        if sampler is not None:
            sampler.shuffle = shuffle
        return iterator_for_epoch(self, epoch, shuffle, *args, **kwargs)

    FairseqTask.get_batch_iterator = get_same_batch_iterator
    EpochBatchIterator._get_iterator_for_epoch = shuffled_iterator_for_epoch
