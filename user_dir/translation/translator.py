"""Translation of arbitrary sentences: preprocessed as in the corpus, returned as natural text."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fairseq import utils
from fairseq.data.data_utils import batch_by_size
from fairseq.dataclass.configs import GenerationConfig

from ..checkpoints import load_checkpoint, model_name
from ..corpora import Corpus
from ..corpora.pieces import NewText
from ..errors import UserError
from ..post_editing.scoring import folding, with_case_of
from .loading import (
    Search,
    corpus_of,
    load_model,
    penalise_new_pieces,
    translation_direction,
    translation_limit,
)
from .scoring import join_pieces, natural_text


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence."""

    text: str  # natural text
    score: float  # log₂ p, divided by the number of tokens to the power of the length penalty
    tokens: np.ndarray  # int64 (T,), of the target dictionary, with ``</s>``
    unfinished: bool  # only for the best: it reached the limit of length, or was given up without an end


class BeamSearch:
    """fairseq's beam search with one model, or with an ensemble of several that have one vocabulary.

    The models cannot be trained afterwards. Raises UserError if the beam is larger than the vocabulary.
    """

    def __init__(self, models: Sequence, task, search: Search):
        symbols = len(task.target_dictionary)
        if not 1 <= search.beam <= symbols:
            raise UserError(f"--beam {search.beam}: give 1 to {symbols}, the symbols of the vocabulary")
        settings = GenerationConfig(beam=search.beam, lenpen=search.length_penalty)
        settings.max_len_a, settings.max_len_b = search.limit.a, search.limit.b
        for model in models:
            model.prepare_for_inference_(Namespace(generation=settings))
        self.generator = task.build_generator(models, settings)
        self.task, self.settings, self._models = task, search, models
        self._on_gpu = next(models[0].parameters()).is_cuda

    def __call__(self, sample: dict) -> list[list[dict]]:
        """The hypotheses of each sentence of a batch, in fairseq's form, best first.

        The best has ``unfinished``: whether it reached the limit of length, or was given up without an end.
        """
        if self._on_gpu:
            sample = utils.move_to_cuda(sample)
        generator, source = self.generator, sample["net_input"]["src_tokens"]
        longest = int(generator.max_len_a * source.size(1) + generator.max_len_b)
        longest = min(longest, generator.max_len - 1)
        hypotheses = self.task.inference_step(generator, self._models, sample)
        for best, *_ in hypotheses:
            best["unfinished"] = len(best["tokens"]) > longest or float(best["score"]) == -math.inf
        return hypotheses

    def text(self, tokens) -> str:
        """Tokens of the target as text with pieces joined."""
        stripped = self.generator.symbols_to_strip_from_output
        string = self.task.target_dictionary.string
        return join_pieces(string(tokens.int().cpu(), extra_symbols_to_ignore=stripped))


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
        self.models, self.names, limits = [], [], []
        for checkpoint in checkpoints:
            state = load_checkpoint(checkpoint)
            if not isinstance(corpus, Corpus):
                corpus = corpus_of(state, checkpoint, corpus, data)
            limits.append(translation_limit(state, corpus, max_len_a, max_len_b))
            direction = translation_direction(state, checkpoint, corpus)
            if self.models and direction != self.direction:
                raise UserError(f"{checkpoint} translates in another direction than {checkpoints[0]}")
            self.corpus, self.direction = corpus, direction
            if load is None:
                model, self.task = load_model(checkpoint, corpus, direction, cpu=cpu, int8=int8)
            else:
                model, self.task = load(checkpoint, corpus, cpu=cpu)
            penalise_new_pieces(model, new_piece_penalty, checkpoint)
            self.models.append(model)
            self.names.append(model_name(state))
        search = Search(limit=max(limits, key=lambda limit: limit.b), **options)
        self.search = BeamSearch(self.models, self.task, search)
        if not 1 <= nbest <= search.beam:
            raise UserError(f"--nbest {nbest}: give 1 to {search.beam}, the --beam")
        positions = [model.max_positions() for model in self.models]
        self.max_positions = tuple(min(sides) for sides in zip(*positions))
        self.limit = search.limit.within(self.max_positions[1])
        self._nbest = nbest
        self._new_text, self._new_target = (NewText(corpus, language) for language in self.direction)
        self._natural, self._fold = natural_text(corpus.description, self.direction[1]), None
        if corpus.description.case is not None:
            self._fold = folding(corpus, self.direction[1], next(iter(corpus.test_sets), "valid"))

    def encode(self, sentence: str, number: int = 1, name: str = "") -> np.ndarray:
        """The int64 (S,) tokens of a sentence, ending with ``</s>``; only ``</s>`` for an empty sentence.

        For a corpus that is released as tokens, it must be tokenised; for a post-editor it is the source
        sentence, a tab and its machine translation. Raises UserError, with line ``number`` of the file
        ``name``, if it has more tokens than the models allow, or not exactly one tab for a post-editor.
        """
        pieces = self._new_text.pieces(sentence, number, name)
        where = f"{name}, line {number}" if name else f"line {number}"
        return self._encoded(pieces, self.task.source_dictionary, self.max_positions[0], where)

    def encode_target(self, translation: str) -> np.ndarray:
        """The int64 (T,) tokens of a translation, for the decoder to read; errors as :meth:`encode`."""
        pieces = self._new_target.pieces(translation)
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
        """Translate as a call does, but from ``encoded``, the tokens of ``sentences`` by :meth:`encode`."""
        translations: list[list[Hypothesis]] = [[] for _ in sentences]
        lengths = np.array(list(map(len, encoded)))
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 1]
        most = max([self.search.settings.max_tokens, *lengths])
        for batch in batch_by_size(order, None, lengths[order], most) if len(order) else ():
            tokens = [torch.from_numpy(encoded[number]) for number in batch]
            dataset = self.task.build_dataset_for_inference(tokens, list(map(len, tokens)))
            sample = dataset.collater([dataset[row] for row in range(len(tokens))])
            for row, hypotheses in zip(sample["id"].tolist(), self.search(sample)):
                sentence = sentences[batch[row]]
                best = [self._hypothesis(hypothesis, sentence) for hypothesis in hypotheses[: self._nbest]]
                translations[batch[row]] = best
        return translations

    def _hypothesis(self, hypothesis: dict, sentence: str) -> Hypothesis:
        tokens, cut = hypothesis["tokens"].long().cpu(), hypothesis.get("unfinished", False)
        line = self.search.text(tokens)
        if self._fold is not None:
            line = with_case_of(line, sentence.partition("\t")[2], self._fold)
        score = float(hypothesis["score"] / math.log(2))
        return Hypothesis(self._natural(line), score, tokens.numpy(), cut)
