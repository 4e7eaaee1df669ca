"""What workers draw in each epoch, against the same without workers."""

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from fairseq.data import BaseWrapperDataset, ListDataset, NestedDictionaryDataset, SortDataset
from fairseq.data.iterators import EpochBatchIterator

from user_dir.config import KEEP_MEMORY

ROOT = Path(__file__).resolve().parents[2]
MEMORY_OF_A_WORKER = """
import re
from pathlib import Path
import torch
import user_dir.guards.epochs_in_workers
from fairseq.data import ListDataset
from fairseq.data.iterators import EpochBatchIterator

def memory(*_):  # MiB of this process
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

torch.ones(300 << 18)  # 300 MiB, freed at once
(of_worker,) = EpochBatchIterator(ListDataset([0], [1]), memory, [[0]], num_workers=1).next_epoch_itr()
print(memory(), of_worker)
"""


class Drawn(BaseWrapperDataset):
    """Items that depend on the epoch."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.epoch = 1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return 100 * self.epoch + self.dataset[index]


def iterator(workers: int, **settings) -> EpochBatchIterator:
    drawn = Drawn(ListDataset(list(range(6)), [1] * 6))
    nested = SortDataset(NestedDictionaryDataset({"net_input": {"numbers": drawn}}), [list(range(6))])
    batches = [[0, 1], [2, 3], [4, 5]]
    return EpochBatchIterator(
        nested,
        lambda items: [item["net_input.numbers"] for item in items],
        batches,
        num_workers=workers,
        reuse_dataloader=True,
        **settings,
    )


@pytest.mark.parametrize("buffer_size", [0, 2])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_each_epoch_is_drawn_anew(workers, buffer_size):
    batches = iterator(workers, buffer_size=buffer_size)
    for epoch in (1, 2, 3):
        found = sorted(chain.from_iterable(batches.next_epoch_itr()))
        assert found == [100 * epoch + i for i in range(6)]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_resumed_epoch_is_drawn_as_before(workers):
    batches = iterator(workers)
    list(batches.next_epoch_itr())
    second = batches.next_epoch_itr()
    begun, state = next(second), batches.state_dict()
    resumed = iterator(workers)
    resumed.dataset.set_epoch(2)  # as by FairseqTask.get_batch_iterator
    resumed.load_state_dict(state)
    assert sorted([*begun, *chain.from_iterable(resumed.next_epoch_itr())]) == [200 + i for i in range(6)]
    assert sorted(chain.from_iterable(resumed.next_epoch_itr())) == [300 + i for i in range(6)]


@pytest.mark.skipif(sys.platform != "linux", reason="memory that glibc keeps")
def test_workers_do_not_hold_what_has_been_freed():
    environment = {**os.environ, **KEEP_MEMORY}
    command = [sys.executable, "-c", MEMORY_OF_A_WORKER]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    own, of_worker = map(int, run.stdout.split())
    assert own > 300 and of_worker < own - 250
