"""What a dataset draws anew in each epoch stays that of the first epoch, as soon as workers load the data.

fairseq-fixed 0.12.3.1 keeps the processes of ``--num-workers`` (1 by default), and with them their copies of
the dataset, whose epoch nobody tells them. A masked language model sees the same masks in every epoch, and
BPE dropout is the same segmentation. Unnecessary once fairseq tells its workers the epoch, or begins new
ones.

A new worker is a copy of a process that may have freed gigabytes which glibc keeps for it, and which are held
twice as soon as they are written to; so the worker returns its own.
"""

import ctypes
import os
from collections.abc import Iterator, Mapping

from fairseq.data.iterators import EpochBatchIterator
from torch.utils.data import Dataset

from .announcing import acted
from .installing import around

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
if _malloc_trim is not None:
    os.register_at_fork(after_in_child=lambda: _malloc_trim(0))


@around(EpochBatchIterator, "__init__")
def make(make, self, *args, **kwargs):
    """Let each epoch begin with new workers, which copy the dataset as it is then."""
    make(self, *args, **kwargs)
    if self.persistent_workers:
        self.persistent_workers = False
        if any("epoch" in vars(each) for each in _parts(self.dataset)):
            acted("epochs-in-workers", "lets workers draw anew in each epoch, such as other masks")


def _parts(dataset: Dataset) -> Iterator[Dataset]:
    """A dataset and all that it wraps."""
    yield dataset
    for value in vars(dataset).values():
        if isinstance(value, Mapping):
            value = value.values()
        elif not isinstance(value, (list, tuple)):
            value = [value]
        for inner in value:
            if isinstance(inner, Dataset):
                yield from _parts(inner)
