"""A checkpoint as a model over its corpus: direction, limits and search settings, and fairseq's task."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from .. import models, post_editing  # noqa: F401  register our models
from ..checkpoints import fingerprints_of, model_name, require_same, task_settings
from ..corpora import Corpus, load_corpus
from ..corpora.corpus import read_dictionary, sentence_lengths
from ..corpora.description import read_description
from ..corpora.stamps import changed
from ..errors import UserError, first_few, one_line
from ..files import ROOT, SHARED, shown

MODELS = SHARED / "data" / "models"
"""The folders of models that come with the project."""
CHECKPOINT = "model.pt"  # in the folder of a model
MAX_LEN_B = "max_len_b"  # in extra_state of such a checkpoint: the limit of its corpus
MIN_DEFAULT = 200  # pieces; fairseq's --max-len-b


class ModelFolder(Corpus):
    """The corpus of a model that is handed over as a folder: it preprocesses new text, but has no splits."""

    bin = tokenizers = property(lambda self: self.folder)


def find_model(model: str | Path) -> tuple[Path, Corpus | None]:
    """The checkpoint of a model and, if it comes as a folder, the corpus in it: all that translating needs.

    ``model`` is a checkpoint, the folder of a model, or the name of such a folder in :data:`MODELS`. Raises
    UserError if there is none.
    """
    path = Path(model)
    if path.is_file():
        return path, None
    for folder in (path, MODELS / path):
        if (folder / CHECKPOINT).is_file():
            description = read_description(folder / "corpus.yaml")
            return folder / CHECKPOINT, ModelFolder(folder.resolve().name, folder, description)
    raise UserError(f"there is no model {shown(str(model))}, neither a file nor a folder with {CHECKPOINT}")


def corpus_of(state: dict, checkpoint: Path, name: str | None = None, data: Path | None = None) -> Corpus:
    """The prepared corpus that a checkpoint was trained on.

    ``name`` and ``data``, the folder of the corpora, are by default those in the checkpoint's settings, or
    else the folder ``data``. Raises UserError if the corpus has no name, is unknown or not prepared.
    """
    trained_on = str(task_settings(state).get("data") or "").split(os.pathsep)[0]
    folder = Path(trained_on)  # DATA/CORPUS/bin, relative to the root of the repository
    if folder.name == "bin" and len(folder.parts) > 1:
        name = name or folder.parent.name
        prepared = (ROOT / folder).parent
        if data is None and prepared.name == name and (prepared / "bin" / "stamp.json").is_file():
            data = prepared.parent
    if name is None:
        raise UserError(
            f"{checkpoint} names no corpus (its data are {shown(trained_on)}); give --corpus, or --model DIR"
        )
    return load_corpus(name, data).require_prepared()


def translation_direction(state: dict, checkpoint: Path, corpus: Corpus) -> tuple[str, str]:
    """The source and target language of a checkpoint; raises UserError unless it matches the corpus."""
    task = task_settings(state)
    direction = task.get("source_lang"), task.get("target_lang")
    if "encoder.embed_tokens.weight" not in state["model"] or None in direction:
        raise UserError(f"{checkpoint} is of a {model_name(state)}, which is not a fairseq translation model")
    if sorted(map(str, direction)) != sorted(corpus.languages):
        raise UserError(
            f"{checkpoint} translates {'-'.join(direction)}, but {corpus.name} is of other languages"
        )
    sides = dict(zip(("source", "target"), direction))
    files = {side: corpus.bin / f"dict.{language}.txt" for side, language in sides.items()}
    dictionaries = {side: read_dictionary(corpus.bin, language) for side, language in sides.items()}
    pieces = corpus.pieces if corpus.pieces.is_file() else None
    require_same(state, checkpoint, fingerprints_of(dictionaries, files, pieces))
    return direction


@dataclass(frozen=True)
class Limit:
    """A translation has at most ``a`` × source + ``b`` pieces: fairseq's ``--max-len-a`` and ``-b``.

    The source is counted in pieces with ``</s>``, and padded to the longest of its batch.
    """

    a: float = 0.0
    b: int = MIN_DEFAULT

    def within(self, positions: int) -> Limit:
        """This limit for a model with so many ``positions``, the last of which is for ``</s>``."""
        return self if self.b < positions - 1 else Limit(0.0, positions - 1)

    def __str__(self) -> str:
        times = f"{self.a:g} × source + " if self.a else ""
        return f"the limit of {times}{self.b} pieces"


def translation_limit(
    state: dict, corpus: Corpus, max_len_a: float | None = None, max_len_b: int | None = None
) -> Limit:
    """The requested limit, or else the longest side of a training pair, but at least 200 pieces.

    ``state`` is the model's checkpoint, which in the folder of a model records the limit of its corpus.
    """
    if max_len_b is None:
        recorded = (state.get("extra_state") or {}).get(MAX_LEN_B, 0)
        max_len_b = max(MIN_DEFAULT, longest_side(corpus), recorded)
    return Limit(max_len_a or 0.0, max_len_b)


def longest_side(corpus: Corpus) -> int:
    """Pieces of the longest side of a training pair, without ``</s>``; 0 if there is no training text."""
    pair = corpus.languages
    if not (corpus.bin / f"train.{'-'.join(pair)}.{pair[0]}.idx").is_file():
        return 0
    return max(int(sentence_lengths(corpus.bin, "train", pair, side).max(initial=1)) for side in pair) - 1


@dataclass(frozen=True)
class Search:
    """How translations are searched for."""

    beam: int = 5
    length_penalty: float = 1.0  # fairseq's ``--lenpen``
    limit: Limit = Limit()
    max_tokens: int = 4096  # of a batch, on one side, including padding


def load_model(
    checkpoint: Path, corpus: Corpus, direction: tuple[str, str], *, cpu: bool = False, int8: bool = False
):
    """Load any fairseq translation model, in evaluation mode, and fairseq's translation task over ``corpus``.

    The model is on a GPU if there is one, unless ``cpu``. With ``int8`` it translates with linear layers in
    8-bit integers, on the CPU. The task has fairseq-generate's defaults, not the settings of training.
    """
    task = _translation_task(corpus, direction)
    return _load(checkpoint, task, cpu, int8), task


def load_language_model(checkpoint: Path, corpus: Corpus, language: str | None = None, *, cpu: bool = False):
    """Load a language model, in evaluation mode, and fairseq's translation task into its language.

    ``language``: None for the second of the corpus; raises UserError for one that the corpus does not have.
    """
    language = language or corpus.languages[1]
    if language not in corpus.languages:
        raise UserError(f"{corpus.name} has no language {language!r}, but {' and '.join(corpus.languages)}")
    task = _translation_task(corpus, (next(code for code in corpus.languages if code != language), language))
    dictionary = task.target_dictionary
    return _load(checkpoint, LanguageModelingTask(LanguageModelingConfig(), dictionary), cpu), task


def _translation_task(corpus: Corpus, direction: tuple[str, str]) -> TranslationTask:
    settings = TranslationConfig(data=str(corpus.bin), source_lang=direction[0], target_lang=direction[1])
    # By default these refer to other sections of a config.
    settings.train_subset, settings.dataset_impl, settings.required_seq_len_multiple = "train", None, 1
    return TranslationTask.setup_task(settings)


def _load(checkpoint: Path, task, cpu: bool, int8: bool = False):
    overrides = {"alpha_log": None, "int8": int8}
    try:
        (model,), _ = checkpoint_utils.load_model_ensemble([str(checkpoint)], overrides, task)
    except UserError:
        raise
    except Exception as error:  # of any type, from unsuitable settings or parameters
        reason = f"{type(error).__name__} {one_line(error)[:200]}"
        raise UserError(f"{checkpoint} has settings that do not work: {reason}") from error
    if int8 and not hasattr(model, "int8"):
        raise UserError(f"--int8 is not possible with {checkpoint}, which is of a {type(model).__name__}")
    model.eval()
    return model.cuda() if torch.cuda.is_available() and not cpu and not int8 else model


def penalise_new_pieces(model, penalty: float | None, checkpoint: Path) -> None:
    """Set a post-editor's penalty on pieces that are not in its input; None keeps that of the checkpoint."""
    if penalty is None:
        return
    if not hasattr(model.decoder, "new_piece_penalty"):
        raise UserError(f"--new-piece-penalty: {checkpoint} is not of a post-editor")
    model.decoder.new_piece_penalty = penalty


def load_split(task, subset: str):
    """fairseq's dataset of a subset, loaded once; raises UserError if its files are missing or corrupt."""
    if subset not in task.datasets:
        for path in changed(Path(task.cfg.data) / "stamp.json", f"bin/{subset}."):
            raise UserError(f"{path} is missing or damaged; prepare its corpus again")
        task.load_dataset(subset)
    return task.dataset(subset)


def too_long(dataset, model) -> list[int]:
    """Numbers, from 0, of the sentence pairs with a side that is longer than the model's limit."""
    source, target = model.max_positions()
    return np.flatnonzero((dataset.src_sizes > source) | (dataset.tgt_sizes > target)).tolist()


def check_lengths(
    dataset, subset: str, max_tokens: int, model, sentences: int | None = None, left_out: Collection[int] = ()
) -> np.ndarray:
    """The length of each sentence pair, or of the first ``sentences``: tokens of the longer side.

    ``left_out`` are the numbers, from 0, of sentences that may have any length, and get 0. Raises UserError
    if there are no sentences, or one is longer than the limit of the ``model`` or ``max_tokens`` of a batch.
    """
    lengths = np.maximum(dataset.src_sizes, dataset.tgt_sizes)[:sentences]
    lengths[list(left_out)] = 0
    if not lengths.any():
        raise UserError(f"{subset} has no sentences, or none within the model's limit")
    longest = int(lengths.argmax())
    if lengths[longest] > max_tokens:
        of = f"line {longest + 1} of {subset}, which has {lengths[longest]} tokens"
        raise UserError(f"--max-tokens {max_tokens} is too small for {of}")
    limits = model.max_positions()
    limits = limits if isinstance(limits, tuple) else (math.inf, limits)  # a language model has one side
    for side, sizes, limit in zip(("source", "target"), (dataset.src_sizes, dataset.tgt_sizes), limits):
        long = np.flatnonzero((sizes[: len(lengths)] > limit) & (lengths > 0)).tolist()
        if long:
            have = f"{first_few(long)} of {subset}: up to {sizes[long].max()} {side} tokens"
            raise UserError(f"{have}, but the model allows {limit}; evaluate has --skip-long")
    return lengths
