"""The batches of an epoch are the same, whichever epoch the process began in."""

import inspect
import itertools
from unittest import mock

import numpy as np
import pytest
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks.fairseq_task import FairseqTask

FAIRSEQS_OWN = inspect.unwrap(FairseqTask.get_batch_iterator)
SENTENCES = 300


class Sentences(FairseqDataset):
    """Lengths among which many are equal, in an order at random, as fairseq's training data has them."""

    def __init__(self, reusable: bool = True):
        self.sizes = 1 + np.arange(SENTENCES) % 7
        self.epoch, self.reusable = None, reusable

    def __getitem__(self, index):
        return index

    def __len__(self):
        return SENTENCES

    def collater(self, samples):
        return tuple(samples)

    def ordered_indices(self):
        order = np.random.permutation(SENTENCES)
        return order[np.argsort(self.sizes[order], kind="stable")]

    def num_tokens_vec(self, indices):
        return self.sizes[indices]

    def set_epoch(self, epoch):
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self):
        return self.reusable


class Process:
    """A training process, begun in an epoch; by the guard or by fairseq alone."""

    def __init__(self, epoch: int, alone: bool = False, reusable: bool = True, **settings):
        self.task, self.dataset, self.begun = FairseqTask(None), Sentences(reusable), epoch
        self.make = FAIRSEQS_OWN if alone else FairseqTask.get_batch_iterator
        self.settings = {"max_tokens": 20, "required_batch_size_multiple": 8, "seed": 5, **settings}

    def iterator(self, epoch: int) -> EpochBatchIterator:
        return self.make(self.task, self.dataset, epoch=epoch, **self.settings)

    def epochs(self, last: int, position: int = 0) -> list[list[tuple]]:
        """The batches of the epochs up to ``last``; the first begins with batch ``position``."""
        found, epoch = [], self.begun
        while epoch <= last:
            iterator = self.iterator(epoch)
            if position and not found:
                iterator.load_state_dict({"version": 2, "epoch": epoch, "iterations_in_epoch": position})
            found.append(list(iterator.next_epoch_itr(shuffle=True)))
            assert self.dataset.epoch == iterator.epoch == epoch
            epoch = iterator.next_epoch_idx
        return found


@pytest.mark.parametrize("shard", [None, 0, 1])
@pytest.mark.parametrize(("epoch", "position"), [(1, 4), (2, 0), (2, 3), (3, 1), (3, 0)])
def test_a_resumed_training_has_the_batches_that_were_left(epoch, position, shard):
    settings = {} if shard is None else {"num_shards": 2, "shard_id": shard}
    through = Process(1, **settings).epochs(4)
    resumed = Process(epoch, **settings).epochs(4, position)
    assert resumed == [through[epoch - 1][position:], *through[epoch:]]


def test_fairseq_alone_has_others():
    """If this fails, the guard can go."""
    through, resumed = Process(1, alone=True).epochs(2), Process(2, alone=True).epochs(2)
    assert through[1] != resumed[0]
    assert sorted(map(sorted, through[1])) != sorted(map(sorted, resumed[0]))


@pytest.mark.parametrize("settings", [{}, {"update_epoch_batch_itr": True}, {"disable_iterator_cache": True}])
def test_a_training_that_is_not_stopped_is_fairseqs(settings):
    assert Process(1, **settings).epochs(3) == Process(1, alone=True, **settings).epochs(3)


@pytest.mark.parametrize("settings", [{"update_epoch_batch_itr": True}, {"reusable": False}])
def test_batches_made_anew_in_each_epoch_stay_so(settings):
    through = Process(1, **settings).epochs(3)
    assert sorted(map(sorted, through[0])) != sorted(map(sorted, through[1]))
    assert Process(2, **settings).epochs(3) == through[1:]


def test_each_sentence_is_in_each_epoch_once():
    for batches in Process(3).epochs(5):
        assert sorted(itertools.chain.from_iterable(batches)) == list(range(SENTENCES))


def test_shuffling_begins_after_the_curriculum():
    """Also where the training was not stopped in between."""

    def orders(begun: int) -> list[list[tuple]]:
        process = Process(begun)
        return [list(process.iterator(epoch).next_epoch_itr(shuffle=epoch > 2)) for epoch in range(begun, 5)]

    through = orders(1)
    assert through[0] == through[1] != through[2] != through[3]
    assert orders(2) == through[1:] and orders(3) == through[2:]
    alone = EpochBatchIterator._get_iterator_for_epoch.__wrapped__
    with mock.patch.object(EpochBatchIterator, "_get_iterator_for_epoch", alone):
        assert orders(1)[3] == through[0], "if this fails, this part of the guard can go"
