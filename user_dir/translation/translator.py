"""Translation of arbitrary sentences: preprocessed as in the corpus, returned as natural text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fairseq.data.data_utils import batch_by_size

from ..checkpoints import load_checkpoint
from ..corpora import Corpus
from ..corpora.pieces import NewText
from ..errors import UserError
from ..post_editing.scoring import folding, with_case_of
from .evaluate import BeamSearch
from .loading import (
    Search,
    corpus_of,
    load_model,
    penalise_new_pieces,
    translation_direction,
    translation_limit,
)
from .scoring import natural_text


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence."""

    text: str  # natural text
    score: float  # log₂ p, divided by the number of tokens to the power of the length penalty
    tokens: np.ndarray  # int64 (T,), of the target dictionary, with ``</s>``
    unfinished: bool  # whether it is the best and reached the limit of length, or was given up without an end


class Translator:
    """Translates sentences with a model, or with an ensemble of several.

    Args:
        checkpoints: of fairseq translation models, trained on the same corpus in the same direction.
        corpus, data: a prepared corpus, or as for :func:`~.loading.corpus_of`.
        cpu, int8: as for :func:`~.loading.load_model`.
        load: function ``load(checkpoint, corpus, cpu=cpu)`` that loads a model; None for the default.
        new_piece_penalty: of post-editors, see :func:`~.loading.penalise_new_pieces`.
        max_len_a, max_len_b: as for :func:`~.loading.translation_limit`.
        nbest: number of hypotheses per sentence to return, at most the beam.
        options: ``beam``, ``length_penalty`` and ``max_tokens`` of :class:`~.loading.Search`.

    Raises:
        UserError: a checkpoint or the corpus is missing or corrupt, they do not match, or the beam or
            ``nbest`` is out of range.
    """

    def __init__(
        self,
        checkpoints: Sequence[Path],
        corpus: Corpus | str | None = None,
        *,
        data: Path | None = None,
        cpu: bool = False,
        int8: bool = False,
        load: Callable | None = None,
        new_piece_penalty: float | None = None,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
        nbest: int = 1,
        **options,
    ):
        self.models, limits, directions = [], [], []
        for checkpoint in checkpoints:
            state = load_checkpoint(checkpoint)
            if not isinstance(corpus, Corpus):
                corpus = corpus_of(state, checkpoint, corpus, data)
            limits.append(translation_limit(state, corpus, max_len_a, max_len_b))
            directions.append(translation_direction(state, checkpoint, corpus))
            if directions[-1] != directions[0]:
                raise UserError(f"{checkpoint} translates in another direction than {checkpoints[0]}")
            if load is None:
                model, self.task = load_model(checkpoint, corpus, directions[0], cpu=cpu, int8=int8)
            else:
                model, self.task = load(checkpoint, corpus, cpu=cpu)
            penalise_new_pieces(model, new_piece_penalty, checkpoint)
            self.models.append(model)
        self.corpus, self.direction = corpus, directions[0]
        search = Search(limit=max(limits, key=lambda limit: limit.b), **options)
        search.check_beam(len(self.task.target_dictionary))
        if not 1 <= nbest <= search.beam:
            raise UserError(f"--nbest {nbest}: give 1 to {search.beam}, the --beam")
        positions = [model.max_positions() for model in self.models]
        self.max_positions = tuple(min(sides) for sides in zip(*positions))
        self.limit = search.limit.within(self.max_positions[1])
        self._search, self._nbest = BeamSearch(self.models, self.task, search), nbest
        self._max_tokens = search.max_tokens
        self._new_text, self._new_target = (NewText(corpus, language) for language in self.direction)
        self._natural, self._fold = natural_text(corpus.description, self.direction[1]), None
        if corpus.description.case is not None:
            self._fold = folding(corpus, self.direction[1], next(iter(corpus.test_sets), "valid"))

    def encode(self, sentence: str, number: int = 1, name: str = "") -> np.ndarray:
        """The int64 (S,) tokens of a sentence, ending with ``</s>``; only ``</s>`` for an empty sentence.

        For a corpus that is released as tokens, it must be tokenised; for a post-editor it is the source
        sentence, a tab and its machine translation. ``number`` of its line and ``name`` of its file are for
        the UserError that it has more tokens than the models allow, or not one tab.
        """
        (pieces,) = self._new_text.pieces([sentence], number, name)
        where = f"{name}, line {number}" if name else f"line {number}"
        return self._encoded(pieces, self.task.source_dictionary, self.max_positions[0], where)

    def encode_target(self, translation: str) -> np.ndarray:
        """The int64 (T,) tokens of a translation, for the decoder to read; errors as :meth:`encode`."""
        (pieces,) = self._new_target.pieces([translation])
        return self._encoded(pieces, self.task.target_dictionary, self.max_positions[1], "the translation")

    @staticmethod
    def _encoded(pieces: str, dictionary, limit: int, where: str) -> np.ndarray:
        tokens = np.array([*map(dictionary.index, pieces.split()), dictionary.eos()])
        if len(tokens) > limit:
            raise UserError(f"{where} has {len(tokens)} tokens, but the model allows {limit}")
        return tokens

    def __call__(self, sentences: list[str]) -> list[list[Hypothesis]]:
        """The ``nbest`` best hypotheses of each sentence, best first; none for an empty sentence."""
        encoded = [self.encode(sentence, number) for number, sentence in enumerate(sentences, start=1)]
        return self.translate(sentences, encoded)

    def translate(self, sentences: list[str], encoded: list[np.ndarray]) -> list[list[Hypothesis]]:
        """The same of sentences and their tokens, from :meth:`encode`."""
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        lengths = np.array(list(map(len, encoded)))
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 1]
        most = max([self._max_tokens, *lengths])
        for batch in batch_by_size(order, None, lengths[order], most) if len(order) else ():
            tokens = [torch.from_numpy(encoded[number]) for number in batch]
            dataset = self.task.build_dataset_for_inference(tokens, list(map(len, tokens)))
            sample = dataset.collater([dataset[row] for row in range(len(tokens))])
            for row, hypotheses in zip(sample["id"].tolist(), self._search(sample)):
                sentence = sentences[batch[row]]
                best = [self._hypothesis(hypothesis, sentence) for hypothesis in hypotheses[: self._nbest]]
                found[batch[row]] = best
        return found

    def _hypothesis(self, hypothesis: dict, sentence: str) -> Hypothesis:
        tokens, cut = hypothesis["tokens"].long().cpu(), hypothesis.get("unfinished", False)
        line = self._search.text(tokens)
        if self._fold is not None:
            line = with_case_of(line, sentence.partition("\t")[2], self._fold)
        score = float(hypothesis["score"] / math.log(2))
        return Hypothesis(self._natural(line), score, tokens.numpy(), cut)
