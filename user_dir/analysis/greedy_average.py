"""Averaging only those checkpoints that validation wants: a greedy soup.

Wortsman et al. 2022, Model soups (https://arxiv.org/abs/2203.05482), algorithm 1, with the loss on the
validation set as what is to be low.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from ..checkpoints import average_checkpoints, load_checkpoint, num_updates
from ..corpora import Corpus
from .capture import negative_log_likelihood
from .split import Split, open_split


def greedy_average(
    paths: Sequence[Path], corpus: Corpus, *, cpu: bool = False
) -> tuple[dict, dict[Path, float]]:
    """The mean of the best checkpoint and of those that lower the loss of the mean, best first.

    Args:
        paths: checkpoints of one training.
        corpus: the prepared corpus that they were trained on.
        cpu: use the CPU even if there is a GPU.

    Returns:
        The checkpoint of the mean, as of :func:`~user_dir.checkpoints.average_checkpoints`; and the paths
        that are in it, each with the loss (per piece, on the validation set) of the mean up to it.

    Raises:
        UserError: a checkpoint cannot be read, or they are of different models or another corpus.
    """
    split = open_split(paths[0], corpus, cpu=cpu)
    alone = {path: _loss(split, load_checkpoint(path)) for path in paths}
    first, *others = sorted(paths, key=alone.__getitem__)
    chosen, mean = {first: alone[first]}, average_checkpoints([first])
    for path in others:
        tried = average_checkpoints(sorted([*chosen, path], key=paths.index))
        if (found := _loss(split, tried)) < min(chosen.values()):
            chosen[path], mean = found, tried
    return mean, chosen


@torch.no_grad()
def _loss(split: Split, state: dict) -> float:
    """Of the parameters of a checkpoint, in nats per piece of the target: see negative_log_likelihood."""
    split.model.load_state_dict(state["model"])
    split.model.set_num_updates(num_updates(state))  # for the schedule of α, which is no parameter
    total, pieces = 0.0, 0
    for sample in split.samples():
        loss, count = negative_log_likelihood(split.model, sample, split.padding)
        total, pieces = total + loss, pieces + count
    return total / pieces
