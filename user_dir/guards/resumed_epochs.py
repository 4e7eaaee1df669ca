"""A training resumed in epoch 2 or later sees some sentences twice and others not at all.

fairseq (0.12.2 and later) makes the batches once per process, seeded by ``--seed`` plus the epoch in which
the process starts, and keeps them for all following epochs. A training resumed in epoch 2 has different
batches from those whose first part it has already seen. ``--update-epoch-batch-itr True`` avoids this by
making new batches in each epoch, which also changes a training that is never stopped. Unnecessary once
fairseq seeds kept batches by ``--seed`` alone.

fairseq also keeps the first epoch's decision whether to shuffle batches (fairseq-fixed 0.12.3.1), so that
``--curriculum`` lasts until a training is resumed. And it draws the order of several virtual epochs
(``--virtual-epoch-size``) in the first that the process sees, so that one resumed in the second has another.
"""

import inspect

from fairseq.data.iterators import EpochBatchIterator
from fairseq.data.multilingual.sampled_multi_epoch_dataset import SampledMultiEpochDataset
from fairseq.tasks.fairseq_task import FairseqTask

from .announcing import acted
from .installing import around


@around(FairseqTask, "get_batch_iterator")
def get_batch_iterator(get, *args, **kwargs):
    """Make kept batches as in epoch 1, which is what an uninterrupted training does."""
    given = inspect.signature(get).bind(*args, **kwargs)
    given.apply_defaults()
    settings = given.arguments
    task, dataset, epoch = settings["self"], settings["dataset"], settings["epoch"]
    fresh = settings["disable_iterator_cache"] or settings.get("update_epoch_batch_itr")
    known = fresh or dataset in task.dataset_to_epoch_iter
    if epoch <= 1 or known or not task.can_reuse_epoch_itr(dataset):
        return get(*args, **kwargs)
    acted("resumed-epochs", "makes the batches of a resumed run as those of epoch 1")
    settings["epoch"] = 1
    iterator = get(*given.args, **given.kwargs)
    dataset.set_epoch(epoch)
    iterator.epoch = epoch
    return iterator


@around(EpochBatchIterator, "_get_iterator_for_epoch")
def get_shuffled_iterator(get, self, epoch, shuffle, *args, **kwargs):
    """Decide anew in each epoch whether to shuffle."""
    sampler = getattr(self, "epoch_batch_sampler", None)
    if sampler is not None:
        sampler.shuffle = shuffle
    return get(self, epoch, shuffle, *args, **kwargs)


@around(SampledMultiEpochDataset, "_next_virtual_epoch")
def begin_virtual_epoch(begin, self, epoch):
    """Draw the order in the first of the virtual epochs that share it, whichever the process begins in."""
    before = (epoch - 1) % self.num_virtual_epochs
    if before and self._random_global_indices is None:
        acted("resumed-epochs", "draws the order of virtual epochs in the first of them")
        begin(self, epoch - before)
    begin(self, epoch)
