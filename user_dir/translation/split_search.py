"""Beam search over a split within this process, with the same results as fairseq-generate."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from fairseq import utils
from fairseq.data import data_utils
from fairseq.dataclass.configs import DatasetConfig, GenerationConfig
from tqdm import tqdm

from ..guards.translation import unfinished
from .left_alone import search_others
from .loading import check_lengths, load_split
from .search import Search, log2_p
from .text import join_pieces

# fairseq's seed for shuffling sentences of equal length: its --seed plus the epoch.
_SEED = 1 + 1


@dataclass(frozen=True)
class Translation:
    """A sentence and its best hypothesis, all as text with pieces joined."""

    number: int  # of the sentence in its split, from 0
    source: str
    reference: str  # as binarised
    text: str  # as on line ``D-NUMBER`` of fairseq-generate
    score: float  # log₂ p, normalised by its length
    token_scores: list[float]  # log₂ p of each piece, including ``</s>``
    unfinished: bool  # whether it reached the limit of length, or was given up without an end


@dataclass(frozen=True)
class TranslatedSplit:
    """The translations of a split, in order of batches, and the time that beam search took."""

    translations: list[Translation]
    seconds: float

    @property
    def texts(self) -> list[str]:
        """The hypotheses in corpus order."""
        return [each.text for each in sorted(self.translations, key=lambda each: each.number)]

    @property
    def unfinished(self) -> list[int]:
        """The numbers, from 0, of sentences whose translation reached the limit of length."""
        return sorted(each.number for each in self.translations if each.unfinished)

    def as_fairseq_writes_it(self) -> str:
        """The lines ``S-``, ``T-``, ``H-``, ``D-`` and ``P-`` of fairseq-generate's output."""
        lines = []
        for each in self.translations:
            lines += [f"S-{each.number}\t{each.source}", f"T-{each.number}\t{each.reference}"]
            lines += [f"{kind}-{each.number}\t{each.score}\t{each.text}" for kind in "HD"]
            lines.append(f"P-{each.number}\t" + " ".join(f"{score:.4f}" for score in each.token_scores))
        return "".join(line + "\n" for line in lines)


class BeamSearch:
    """fairseq's beam search with one model, or with an ensemble of several that have one vocabulary.

    The models cannot be trained afterwards. Length limits of the ``generator``, fairseq's, may be changed
    between batches; ``seconds`` is the total time of the search so far.
    """

    def __init__(self, models: Sequence, task, search: Search):
        settings = GenerationConfig(beam=search.beam, lenpen=search.length_penalty)
        settings.max_len_a, settings.max_len_b = search.limit.a, search.limit.b
        for model in models:
            model.prepare_for_inference_(Namespace(generation=settings))
        self.generator = task.build_generator(models, settings)
        self.generator.tells_unfinished = False  # they are marked instead
        self.seconds = 0.0
        self._models, self._task = models, task
        self._on_gpu = next(models[0].parameters()).is_cuda
        self._stripped = self.generator.symbols_to_strip_from_output

    def __call__(self, sample: dict) -> list[list[dict]]:
        """The hypotheses of each sentence of a batch, in fairseq's form, best first.

        The best has ``unfinished``: whether it reached the limit of length, or was given up without an end.
        """
        if self._on_gpu:
            sample = utils.move_to_cuda(sample)
        begin = time.perf_counter()
        found = search_others(self._inference, self.generator, self._models, sample)
        self.seconds += time.perf_counter() - begin
        for hypotheses, cut in zip(found, unfinished(self.generator, sample, found)):
            hypotheses[0]["unfinished"] = cut
        return found

    def _inference(self, sample: dict) -> list[list[dict]]:
        return self._task.inference_step(self.generator, self._models, sample)

    def text(self, hypothesis: dict) -> str:
        """A hypothesis as text with pieces joined."""
        return self._text(hypothesis["tokens"].int().cpu())

    def translations(self, sample: dict) -> Iterator[Translation]:
        """The best hypothesis of each sentence of a batch of a split."""
        padding, source = self._task.target_dictionary.pad(), self._task.source_dictionary
        for row, ((best, *_), number) in enumerate(zip(self(sample), sample["id"].tolist())):
            tokens, expected = sample["net_input"]["src_tokens"][row], sample["target"][row]
            yield Translation(
                number,
                join_pieces(source.string(utils.strip_pad(tokens, padding))),
                self._text(utils.strip_pad(expected, padding), escape_unk=True),
                self.text(best),
                log2_p(best),
                best["positional_scores"].div(math.log(2)).tolist(),
                best["unfinished"],
            )

    def _text(self, tokens, **how) -> str:
        target = self._task.target_dictionary
        return join_pieces(target.string(tokens, extra_symbols_to_ignore=self._stripped, **how))


def translate_split(
    model,
    task,
    subset: str,
    search: Search,
    *,
    sentences: int | None = None,
    left_out: Collection[int] = (),
    description: str | None = None,
) -> TranslatedSplit:
    """Translate a split with a progress bar.

    Batches are those of ``fairseq-generate --max-tokens N``, so that rounding and hence the hypotheses are
    identical.

    Args:
        model: in evaluation mode; heads may be masked.
        task: the model's task.
        subset: fairseq's name of the split.
        search: how to search.
        sentences: only the first N sentences of the split; None for all.
        left_out: numbers of sentences, from 0, that are not translated.
        description: label of the progress bar; None for the name of the split.

    Raises:
        UserError: the split is missing, corrupt, or has a sentence longer than the model's limit.
    """
    beam_search = BeamSearch([model], task, search)
    dataset, most = load_split(task, subset), search.max_tokens
    lengths = check_lengths(dataset, subset, most, model, sentences, left_out=left_out)
    numbers = np.delete(np.arange(len(lengths)), list(left_out))
    translations: list[Translation] = []
    for sample in batches(dataset, numbers, most, description or subset):
        translations += beam_search.translations(sample)
    return TranslatedSplit(translations, beam_search.seconds)


def batches(dataset, numbers: np.ndarray, max_tokens: int, description: str) -> Iterator[dict]:
    """The sentences with these numbers in fairseq's own batches, with a progress bar."""
    with data_utils.numpy_seed(_SEED):
        order = dataset.ordered_indices()
    order = order[np.isin(order, numbers)]
    multiple = DatasetConfig.required_batch_size_multiple
    with tqdm(total=len(order), desc=description, unit="sentence", disable=None) as progress:
        for members in dataset.batch_by_size(order, max_tokens, required_batch_size_multiple=multiple):
            yield dataset.collater([dataset[i] for i in members])
            progress.update(len(members))
