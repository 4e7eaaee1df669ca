"""The batches of an epoch are the same, whichever epoch the process began in."""

import inspect
import itertools
from collections import OrderedDict
from unittest import mock

import numpy as np
import pytest
from fairseq.data.iterators import EpochBatchIterator
from fairseq.data.multilingual.sampled_multi_epoch_dataset import SampledMultiEpochDataset
from fairseq.tasks.fairseq_task import FairseqTask
from lengths import Lengths

FAIRSEQS_OWN = inspect.unwrap(FairseqTask.get_batch_iterator)
SENTENCES = 300


def batches(iterator: EpochBatchIterator, shuffle: bool) -> list[tuple]:
    return [tuple(batch["id"].tolist()) for batch in iterator.next_epoch_itr(shuffle=shuffle)]


class Process:
    """A training process, begun in an epoch; by the guard or by fairseq alone."""

    def __init__(self, epoch: int, alone: bool = False, reusable: bool = True, **settings):
        self.task, self.begun = FairseqTask(None), epoch
        self.dataset = Lengths(1 + np.arange(SENTENCES) % 7)
        self.dataset.can_reuse_epoch_itr_across_epochs = reusable
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
            found.append(batches(iterator, True))
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
    for found in Process(3).epochs(5):
        assert sorted(itertools.chain.from_iterable(found)) == list(range(SENTENCES))


def test_shuffling_begins_after_the_curriculum():
    """Also where the training was not stopped in between."""

    def orders(begun: int) -> list[list[tuple]]:
        process = Process(begun)
        return [batches(process.iterator(epoch), epoch > 2) for epoch in range(begun, 5)]

    through = orders(1)
    assert through[0] == through[1] != through[2] != through[3]
    assert orders(2) == through[1:] and orders(3) == through[2:]
    alone = EpochBatchIterator._get_iterator_for_epoch.__wrapped__
    with mock.patch.object(EpochBatchIterator, "_get_iterator_for_epoch", alone):
        assert orders(1)[3] == through[0], "if this fails, this part of the guard can go"


def virtual_epochs(first: int, last: int) -> list[list[tuple]]:
    """The sentences (data set, number) of the epochs of a process that begins in the first."""
    dataset = SampledMultiEpochDataset(
        OrderedDict(a=Lengths([3] * 8), b=Lengths([4] * 5)),
        sampling_ratios=[0.5, 0.5],
        epoch=first,
        virtual_size=13,
        virtual_epoch_size=5,
        shared_collater=True,
    )
    found = []
    for epoch in range(first, last + 1):
        dataset.set_epoch(epoch)
        found.append([dataset._get_dataset_and_index(i) for i in range(len(dataset))])
    return found


@pytest.mark.parametrize("epoch", [2, 3, 4, 5])
def test_a_resumed_training_has_the_sentences_of_its_virtual_epoch(epoch):
    through = virtual_epochs(1, 6)
    assert [len(each) for each in through] == [5, 5, 3] * 2
    assert through[:3] != through[3:], "the order is drawn anew"
    assert virtual_epochs(epoch, 6) == through[epoch - 1 :]
