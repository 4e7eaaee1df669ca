"""Sentences longer than the model's limit end fairseq with a traceback, or are dropped almost silently.

In validation and translation fairseq (0.12.2 and later) raises an exception without explanation, in 0.12.2
only at the first validation, and its warning about training data names neither the split nor the limit.
Unnecessary once fairseq names the split, the lines and the remedy before it starts.
"""

import inspect
import logging

import numpy as np
from fairseq import checkpoint_utils
from fairseq.data import ConcatDataset, LanguagePairDataset
from fairseq.tasks.fairseq_task import FairseqTask

from ..errors import UserError, exit_on_user_error, first_few
from .installing import around

logger = logging.getLogger(__name__)


@around(FairseqTask, "filter_indices_by_size")
def filter_indices_by_size(
    _, self, indices, dataset, max_positions=None, ignore_invalid_inputs=False
) -> np.ndarray:
    """Name split, lines, lengths, limit and remedy in one message."""
    kept, left_out = dataset.filter_indices_by_size(indices, max_positions)
    if len(left_out):
        told = _described(self, dataset, left_out, f"more than {_limit(max_positions)}")
        if not ignore_invalid_inputs:
            raise UserError(
                f"{told}; leave {'it' if len(left_out) == 1 else 'them'} out with "
                "--skip-invalid-size-inputs-valid-test, or shorten long sources with --truncate-source "
                "(--max-source-positions and --max-target-positions set the limit, up to the model's own)"
            )
        if not len(kept):
            raise UserError(f"{told}, which leaves no sentence")
        share = f"{len(left_out):,} of {len(left_out) + len(kept):,}"
        logger.warning("%s: left out, %s", told, share)
    return kept


@around(FairseqTask, "get_batch_iterator")
def get_batch_iterator(get, *args, **kwargs):
    """Name the sentences that do not fit a batch of --max-tokens."""
    try:
        return get(*args, **kwargs)
    except AssertionError as error:
        if "max_tokens" not in str(error):
            raise
        given = inspect.signature(get).bind(*args, **kwargs).arguments
        dataset, most = given["dataset"], given["max_tokens"]
        long = [i for i in range(len(dataset)) if dataset.num_tokens(i) > most]
        told = _described(given["self"], dataset, long, f"more than the {most} of a batch")
        raise UserError(f"{told}; give a larger --max-tokens (in training, --max-tokens-valid)") from None


@around(checkpoint_utils, "load_checkpoint")
def check_and_load_checkpoint(load, cfg, trainer, **iterator):
    """Check the validation data when a training begins."""
    settings = trainer.cfg.dataset
    with exit_on_user_error():
        if not settings.disable_validation:
            combined = settings.combine_valid_subsets
            for subset in ["valid"] if combined else settings.valid_subset.split(","):
                trainer.get_valid_iterator(subset)
        return load(cfg, trainer, **iterator)


def _described(task, dataset, long: list[int], limit: str) -> str:
    """Describe the sentences and their lengths."""
    subset = next((name for name, each in task.datasets.items() if each is dataset), None)
    sizes = dataset.size(min(long))
    lengths = str(sizes)
    if isinstance(sizes, tuple):  # without references, the target's size is 0
        lengths = f"{sizes[0]} source and {sizes[1]} target" if sizes[1] else f"{sizes[0]} source"
    if subset is None:  # interactive input or a call from Python, without line numbers
        return f"a sentence of the input has {lengths} tokens, {limit}"
    if len(long) == 1:
        return f"{first_few(long, _noun(dataset))} of {subset} has {lengths} tokens, {limit}"
    first = first_few([min(long)], _noun(dataset))
    return f"{first_few(long, _noun(dataset))} of {subset} have {limit} tokens ({first} has {lengths})"


def _noun(dataset) -> str:
    """What the numbers in a dataset count: lines, if it is a single pair of files."""
    side = getattr(dataset, "src", None)
    while side is not None and not isinstance(side, ConcatDataset):
        side = getattr(side, "dataset", None)
    return "line" if isinstance(dataset, LanguagePairDataset) and side is None else "sample"


def _limit(positions) -> str:
    if isinstance(positions, (tuple, list)):
        source, target = positions
        return f"{source} source or {target} target"
    return str(positions)
