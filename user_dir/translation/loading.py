"""Loads the model of a checkpoint, and the splits of a corpus, with fairseq."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from .. import models  # noqa: F401  registers our model
from ..corpora import Corpus
from ..decoding.supported import unsupported_model
from ..errors import UserError, as_checkpoint_error, first_few


def load_model(
    checkpoint: Path, corpus: Corpus, direction: tuple[str, str], *, cpu: bool = False, int8: bool = False
):
    """Load any fairseq translation model, in evaluation mode, and fairseq's translation task over ``corpus``.

    The model is on a GPU if there is one, unless ``cpu``. With ``int8`` it translates with linear layers in
    8-bit integers, on the CPU. The task has fairseq-generate's defaults, not the settings of training.

    Raises:
        UserError: the model cannot translate with 8-bit integers.
    """
    task = _translation_task(corpus, direction)
    return _load(checkpoint, task, cpu, int8), task


def load_language_model(checkpoint: Path, corpus: Corpus, language: str | None = None, *, cpu: bool = False):
    """Load a language model, in evaluation mode, and fairseq's translation task into its language.

    ``language`` is one of the corpus; None for the second.

    Raises:
        UserError: the corpus has no such language, or another dictionary.
    """
    language = language or corpus.languages[1]
    if language not in corpus.languages:
        raise UserError(
            f"{corpus.name} has no language {language!r}; it has {' and '.join(corpus.languages)}"
        )
    task = _translation_task(corpus, (next(each for each in corpus.languages if each != language), language))
    dictionary = task.target_dictionary
    model = _load(checkpoint, LanguageModelingTask(LanguageModelingConfig(), dictionary), cpu)
    return model, task


def _translation_task(corpus: Corpus, direction: tuple[str, str]) -> TranslationTask:
    settings = TranslationConfig(data=str(corpus.bin), source_lang=direction[0], target_lang=direction[1])
    # By default these refer to other sections of a config.
    settings.train_subset, settings.dataset_impl, settings.required_seq_len_multiple = "train", None, 1
    return TranslationTask.setup_task(settings)


def _load(checkpoint: Path, task, cpu: bool, int8: bool = False):
    with as_checkpoint_error(checkpoint):
        models, _ = checkpoint_utils.load_model_ensemble(
            [str(checkpoint)], arg_overrides={"alpha_log": None, "int8": int8}, task=task
        )
    model = models[0].eval()
    if int8 and (reason := unsupported_model(model)) is not None:
        raise UserError(f"--int8 is not possible with {checkpoint}: {reason}; omit it")
    return model.cuda() if torch.cuda.is_available() and not cpu and not int8 else model


def penalise_new_pieces(model, penalty: float | None, checkpoint: Path) -> None:
    """Set a post-editor's penalty on pieces that are not in its input; None keeps that of the checkpoint."""
    if penalty is None:
        return
    if not hasattr(model.decoder, "new_piece_penalty"):
        raise UserError(f"--new-piece-penalty: {checkpoint} is not of a post-editor; omit it")
    model.decoder.new_piece_penalty = penalty


def load_split(task, subset: str):
    """fairseq's dataset of a subset, loaded once; raises UserError if its files are missing or corrupt."""
    if subset not in task.datasets:
        task.load_dataset(subset)
    return task.dataset(subset)


def too_long(dataset, model) -> list[int]:
    """Numbers, from 0, of the sentence pairs with a side that is longer than the model's limit."""
    source, target = model.max_positions()
    return np.flatnonzero((dataset.src_sizes > source) | (dataset.tgt_sizes > target)).tolist()


def check_lengths(
    dataset,
    subset: str,
    max_tokens: int,
    model,
    sentences: int | None = None,
    *,
    left_out: Collection[int] = (),
    remedy: str = "",
) -> np.ndarray:
    """The length of each sentence pair in tokens, i.e. that of its longer side; 0 for those left out.

    Args:
        dataset: from :func:`load_split`.
        subset: its name, for error messages.
        max_tokens: maximum batch size.
        model: limits the length of either side.
        sentences: only the first N sentences; None for all.
        left_out: numbers of sentences, from 0, that may have any length.
        remedy: end of the error message about sentences longer than the model's limit.

    Raises:
        UserError: there are no sentences, or one is longer than the model's limit or ``max_tokens``.
    """
    lengths = np.maximum(dataset.src_sizes, dataset.tgt_sizes)[:sentences]
    if not len(lengths):
        raise UserError(f"the subset {subset} has no sentences")
    lengths[list(left_out)] = 0
    if not lengths.any():
        raise UserError(f"every sentence of {subset} is longer than the model's limit")
    longest = int(lengths.argmax())
    if lengths[longest] > max_tokens:
        raise UserError(
            f"--max-tokens {max_tokens} is too small for line {longest + 1} of {subset}, which has "
            f"{lengths[longest]} tokens"
        )
    limits = model.max_positions()
    limits = limits if isinstance(limits, tuple) else (math.inf, limits)  # a language model has one side
    for side, sizes, limit in zip(("source", "target"), (dataset.src_sizes, dataset.tgt_sizes), limits):
        long = np.flatnonzero((sizes[: len(lengths)] > limit) & (lengths > 0)).tolist()
        if long:
            have = "has" if len(long) == 1 else "have up to"
            raise UserError(
                f"{first_few(long)} of {subset} {have} {sizes[long].max()} {side} tokens, but the model "
                f"allows {limit} at most (its --max-{side}-positions){remedy}"
            )
    return lengths
