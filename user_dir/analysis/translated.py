"""Analysis of a model's heads on its own translations instead of a split with references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from fairseq.data import LanguagePairDataset

from ..corpora import Corpus
from ..errors import UserError
from .maps import Maps
from .result_files import ModelAnalysis, log_beside
from .results import measured
from .roles import ROLES
from .split import Split
from .trajectories import read_trajectories

SUBSET = "own translations"
"""Name of the split in results; splits of a corpus cannot have this name."""


def analyse_translations(
    name: str,
    checkpoint: Path,
    corpus: Corpus,
    model,
    task,
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    texts: list[str],
    maps: Path,
) -> ModelAnalysis:
    """Statistics and attention maps of a model while the decoder reads the given translations.

    Args:
        name: name of the model in the report.
        checkpoint: of the model; α over training is read from ``alpha.jsonl`` next to it.
        corpus: the corpus whose vocabulary the model has.
        model: from :func:`~.capture.load_model`.
        task: the model's task.
        sources: (S,) tokens of each sentence, ``</s>`` last.
        targets: (T,) tokens of each translation, ``</s>`` last.
        texts: the sentences as text.
        maps: the NPZ file to write, which the report reads.

    Raises:
        UserError: there are no sentences, or one is longer than the model's limit.
    """
    if not sources:
        raise UserError("there are no sentences to report on: all lines are empty")
    task.datasets[SUBSET] = dataset_of(task, sources, targets)
    longest = max(map(len, [*sources, *targets]))
    split = Split(checkpoint, corpus, SUBSET, SUBSET, model, task, max_tokens=max(4096, longest))
    about = {"target": "translation"}
    statistics = measured(split, split.pieces(), ROLES, about, maps, len(sources), texts)
    log = log_beside(checkpoint)
    return ModelAnalysis(name, statistics, read_trajectories(log) if log else None, Maps(maps))


def dataset_of(task, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> LanguagePairDataset:
    """fairseq's dataset of sentences and translations as tokens, ``</s>`` last."""
    return LanguagePairDataset(
        list(map(torch.from_numpy, sources)),
        [len(tokens) for tokens in sources],
        task.source_dictionary,
        list(map(torch.from_numpy, targets)),
        [len(tokens) for tokens in targets],
        task.target_dictionary,
        left_pad_source=task.cfg.left_pad_source,
        left_pad_target=task.cfg.left_pad_target,
        shuffle=False,
    )
