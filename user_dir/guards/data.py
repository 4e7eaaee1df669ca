"""fairseq's batches: each epoch has every sentence exactly once, also in a training that is resumed.

Every fault repaired here is in all versions from 0.12.2 on.
"""

import logging

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.data import LanguagePairDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.logging import metrics
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer

from ..errors import UserError, first_few
from . import around

logger = logging.getLogger(__name__)


@around(data_utils, "batch_by_size")
def batch_by_size(batch, indices, *args, **kwargs):
    """Keep the last batch; all others are fairseq's.

    fairseq drops it if its size is not a multiple of ``--required-batch-size-multiple``, by default 8
    (fairseq's issue 5036).
    """
    if kwargs.get("fixed_shapes") is not None:
        return batch(indices, *args, **kwargs)
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64, count=-1)
    if not len(indices):
        return []  # fairseq would access the last batch
    batches = list(batch(indices, *args, **kwargs))
    kept = sum(map(len, batches))  # batches are consecutive parts of the indices
    return batches if kept == len(indices) else [*batches, indices[kept:]]


@around(FairseqTask, "get_batch_iterator")
def get_batch_iterator(get, self, dataset, *args, epoch=1, **kwargs):
    """Where batches are kept for all epochs, make them as in epoch 1, as in an uninterrupted training.

    fairseq makes them once per process, seeded by ``--seed`` plus the epoch in which the process starts: a
    training resumed in epoch 2 would finish that epoch with other batches than before.
    """
    fresh = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    known = fresh or dataset in self.dataset_to_epoch_iter
    if epoch <= 1 or known or not self.can_reuse_epoch_itr(dataset):
        return get(self, dataset, *args, epoch=epoch, **kwargs)
    iterator = get(self, dataset, *args, epoch=1, **kwargs)
    dataset.set_epoch(epoch)
    iterator.epoch = epoch
    return iterator


@around(EpochBatchIterator, "__init__")
def make_iterator(make, self, *args, **kwargs):
    """Let each epoch begin with new workers, which copy the dataset as it is then.

    fairseq-fixed 0.12.3.1 keeps the processes of ``--num-workers`` (1 by default), and with them their copies
    of the dataset, which never learn the new epoch: masks and the segmentations of BPE dropout stay the same.
    """
    make(self, *args, **kwargs)
    self.persistent_workers = False


# ----------------------------------------------------------------------------------- long sentences
# A sentence above the model's limit ends validation and translation with a traceback, and a training only
# at its first validation; fairseq's warning about training data names neither the split nor the limit.


@around(FairseqTask, "filter_indices_by_size")
def filter_indices_by_size(
    _, self, indices, dataset, max_positions=None, ignore_invalid_inputs=False
) -> np.ndarray:
    """Leave out overlong sentences with a warning if allowed, else raise; name split, lines and limit."""
    kept, left_out = dataset.filter_indices_by_size(indices, max_positions)
    if len(left_out):
        both = isinstance(max_positions, (tuple, list))
        limit = "{} source or {} target".format(*max_positions) if both else str(max_positions)
        told = _described(self, dataset, left_out, limit)
        if not ignore_invalid_inputs:
            remedy = "leave out with --skip-invalid-size-inputs-valid-test, or cut with --truncate-source"
            raise UserError(f"{told}; {remedy}")
        if not len(kept):
            raise UserError(f"{told}, which leaves no sentence")
        logger.warning("%s: left out, %s of %s", told, f"{len(left_out):,}", f"{len(left_out) + len(kept):,}")
    return kept


def _described(task, dataset, long: list[int], limit: str) -> str:
    """Name the sentences, and the length of the first."""
    subset = next((name for name, known in task.datasets.items() if known is dataset), None)
    sizes = dataset.size(min(long))
    length = str(sizes)
    if isinstance(sizes, tuple):  # without references, the target's size is 0
        length = f"{sizes[0]} source and {sizes[1]} target" if sizes[1] else f"{sizes[0]} source"
    if subset is None:  # interactive input or a call from Python, without line numbers
        return f"a sentence of the input has {length} tokens, more than {limit}"
    noun = "line" if isinstance(dataset, LanguagePairDataset) else "sample"
    are, first = "is" if len(long) == 1 else "are", f"{noun} {min(long) + 1} has {length}"
    return f"{first_few(long, noun)} of {subset} {are} longer than {limit} tokens ({first})"


@around(checkpoint_utils, "load_checkpoint")
def check_and_load_checkpoint(load, cfg, trainer, **iterator):
    """Check the validation data when a training begins, and validate with a sentence of each subset."""
    settings = trainer.cfg.dataset
    subsets = [] if settings.disable_validation else settings.valid_subset.split(",")
    iterators = [trainer.get_valid_iterator(subset) for subset in subsets]
    restored = load(cfg, trainer, **iterator)
    for validation in iterators:
        check_metric(cfg.best_checkpoint_metric, trainer, validation)
    return restored


def check_metric(name: str, trainer: Trainer, iterator: EpochBatchIterator) -> None:
    """Raise UserError unless validation computes the metric: fairseq notices only after the first epoch."""
    task, batches = trainer.task, getattr(iterator, "frozen_batches", ())
    if hasattr(task, "post_validate") or not len(batches):  # post_validate may add metrics
        return
    sample = trainer._prepare_sample(iterator.collate_fn([iterator.dataset[batches[0][0]]]))[0]
    with torch.no_grad(), metrics.aggregate(new_root=True) as computed:
        logged = task.valid_step(sample, trainer.model.eval(), trainer.criterion.eval())[2]
        # Zeros become 1, because a metric may be missing at 0, such as BLEU where no word is right.
        task.reduce_metrics([{key: value or 1 for key, value in logged.items()}], trainer.get_criterion())
    names = [key for key in computed if not key.startswith("_")]
    if name not in names:
        raise UserError(f"--best-checkpoint-metric {name} is not computed, only {', '.join(sorted(names))}")
