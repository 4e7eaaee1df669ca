"""A model with a split of a corpus: the input of every analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ..attention import Alpha
from ..checkpoints import averaged_updates, load_checkpoint
from ..corpora import Corpus, load_corpus
from ..translation.loading import check_lengths, load_split
from .capture import load_model, on_device
from .words import Pieces


@dataclass(frozen=True)
class Split:
    """A loaded model and the split of a corpus to run it on."""

    checkpoint: Path  # of the model
    corpus: Corpus  # prepared
    name: str  # public name of the split: train, valid or a test set
    subset: str  # fairseq's name of the split
    model: object  # from capture.load_model
    task: object  # the model's
    sentences: int | None = None  # only the first N of the split; None for all
    max_tokens: int = 4096  # of one side of a batch

    @property
    def direction(self) -> tuple[str, str]:
        """Source and target language."""
        return self.task.cfg.source_lang, self.task.cfg.target_lang

    @property
    def padding(self) -> int:
        """The padding symbol."""
        return self.task.source_dictionary.pad()

    @property
    def facts(self) -> dict:
        """The provenance that result files record.

        ``update`` is None if the checkpoint does not say it, ``averaged`` (updates) if it is no average.
        """
        alphas = (module for module in self.model.modules() if isinstance(module, Alpha))
        return {
            "checkpoint": str(self.checkpoint),
            "update": next(alphas).updates or None,
            "averaged": averaged_updates(load_checkpoint(self.checkpoint)),
            "corpus": self.corpus.name,
            "subset": self.name,
            "source_lang": self.direction[0],
            "target_lang": self.direction[1],
        }

    def samples(self, description: str | None = None, *, in_order: bool = False) -> Iterator[dict]:
        """The batches in fairseq's form, on the model's device, with a progress bar of this description.

        ``in_order``: keep corpus order instead of sorting by length, which needs less padding.

        Raises:
            UserError: a sentence is longer than the model or ``max_tokens`` allows.
        """
        dataset = load_split(self.task, self.subset)
        lengths = check_lengths(dataset, self.subset, self.max_tokens, self.model, self.sentences)
        order = np.arange(len(lengths)) if in_order else np.argsort(lengths, kind="stable")
        bar = {"total": len(order), "desc": description or self.subset, "unit": "sentence", "disable": None}
        with tqdm(**bar) as progress:
            for members in dataset.batch_by_size(order, max_tokens=self.max_tokens):
                yield on_device(dataset.collater([dataset[i] for i in members]), self.model)
                progress.update(len(members))

    def pieces(
        self, scheme: str | None = None, interrogatives: Mapping[str, frozenset[str]] | None = None
    ) -> tuple[Pieces, Pieces]:
        """The pieces of the source and target language; ``interrogatives`` by language: see ``Pieces``."""
        lists, (source, target) = interrogatives or {}, self.direction
        return (
            Pieces(self.task.source_dictionary, source, scheme, lists.get(source)),
            Pieces(self.task.target_dictionary, target, scheme, lists.get(target)),
        )


def open_split(
    checkpoint: Path,
    corpus: Corpus | str,
    name: str = "valid",
    *,
    data: Path | None = None,
    sentences: int | None = None,
    max_tokens: int = 4096,
    language: str | None = None,
    cpu: bool = False,
) -> Split:
    """Load a model, of ours or fairseq's stock transformer, and a split, whose name may be fairseq's.

    ``corpus`` is prepared, and in the folder ``data``, or the repository's, if it is a name. ``language`` is
    that of a language model; None for the corpus's second. ``cpu``: use the CPU even if there is a GPU.

    Raises:
        UserError: the corpus, split or checkpoint does not exist, or they do not match.
    """
    if isinstance(corpus, str):
        corpus = load_corpus(corpus, data)
    subset = corpus.require_prepared().subset(name)
    model, task = load_model(checkpoint, corpus, language=language, cpu=cpu)
    return Split(checkpoint, corpus, corpus.split(name), subset, model, task, sentences, max_tokens)


def rounded(value):
    """Round the numbers in nested lists and dicts to 8 decimals."""
    if isinstance(value, float):
        return round(value, 8)
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value
