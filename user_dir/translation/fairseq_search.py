"""Beam search with models of fairseq: any that it can translate with, ensembles, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from ..corpora import Corpus
from .loading import load_model, penalise_new_pieces
from .search import Search
from .split_search import BeamSearch


class FairseqSearch:
    """Searches for the translations of a batch with one or more models.

    Args:
        models: in evaluation mode.
        task: fairseq's translation task.
        search: how to search.

    Attributes:
        models: see above.
        task: see above.
        max_positions: the most tokens of a source and of a translation.
    """

    def __init__(self, models: Sequence, task, search: Search):
        self.models, self.task = list(models), task
        self.max_positions = tuple(min(model.max_positions()[side] for model in models) for side in (0, 1))
        self._search = BeamSearch(self.models, task, search)

    def __call__(self, sentences: list[np.ndarray]) -> list[list[dict]]:
        """The hypotheses of each of some sentences, tokens (S,), best first.

        Each has ``tokens`` (T,) in an array and a ``score``. The best has ``unfinished``: whether it reached
        the limit of length, or was given up without an end.
        """
        given = list(map(torch.from_numpy, sentences))
        dataset = self.task.build_dataset_for_inference(given, list(map(len, sentences)))
        sample = dataset.collater([dataset[i] for i in range(len(sentences))])
        found = dict(zip(sample["id"].tolist(), self._search(sample)))
        return [
            [{**each, "tokens": each["tokens"].long().cpu().numpy()} for each in found[number]]
            for number in range(len(sentences))
        ]


def fairseq_search(
    checkpoints: Sequence[Path],
    corpus: Corpus,
    direction: tuple[str, str],
    search: Search,
    *,
    cpu: bool,
    int8: bool,
    new_piece_penalty: float | None,
    load: Callable | None,
) -> FairseqSearch:
    """Load the models; arguments and errors are those of :func:`~.translator.open_translator`."""
    models, task = [], None
    for checkpoint in checkpoints:
        if load is None:
            model, task = load_model(checkpoint, corpus, direction, cpu=cpu, int8=int8)
        else:
            model, task = load(checkpoint, corpus, cpu=cpu)
        penalise_new_pieces(model, new_piece_penalty, checkpoint)
        models.append(model)
    return FairseqSearch(models, task, search)
