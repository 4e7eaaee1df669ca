"""Translation of splits by beam search, with the results of fairseq-generate, and their scores."""

from __future__ import annotations

import math
import os
import shlex
import time
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from fairseq import utils
from fairseq.data import data_utils
from fairseq.dataclass.configs import DatasetConfig, GenerationConfig
from fairseq.tasks.translation import TranslationConfig
from tqdm import tqdm

from ..checkpoints import load_checkpoint, model_name
from ..corpora import Corpus
from ..corpora.download import sha256
from ..errors import UserError
from ..files import PLUGIN, write_json, write_text
from ..guards.translation import unfinished
from .loading import (
    MIN_DEFAULT,
    Search,
    check_lengths,
    load_model,
    load_split,
    penalise_new_pieces,
    too_long,
    translation_direction,
    translation_limit,
)
from .scoring import ScoredSplit, join_pieces

PENALTIES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
_SEED = 1 + 1  # fairseq's for shuffling sentences of equal length: its --seed plus the epoch


class BeamSearch:
    """fairseq's beam search with one model, or with an ensemble of several that have one vocabulary.

    The models cannot be trained afterwards. ``seconds`` is the total time of the search so far.
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

    def __call__(self, sample: dict) -> list[list[dict]]:
        """The hypotheses of each sentence of a batch, in fairseq's form, best first.

        The best has ``unfinished``: whether it reached the limit of length, or was given up without an end.
        """
        if self._on_gpu:
            sample = utils.move_to_cuda(sample)
        begin = time.perf_counter()
        found = self._task.inference_step(self.generator, self._models, sample)
        self.seconds += time.perf_counter() - begin
        for hypotheses, cut in zip(found, unfinished(self.generator, sample, found)):
            hypotheses[0]["unfinished"] = cut
        return found

    def text(self, tokens, **options) -> str:
        """Tokens of the target as text with pieces joined."""
        tokens, stripped = tokens.int().cpu(), self.generator.symbols_to_strip_from_output
        string = self._task.target_dictionary.string
        return join_pieces(string(tokens, extra_symbols_to_ignore=stripped, **options))

    def log(self, sample: dict, row: int, best: dict) -> str:
        """The lines ``S-``, ``T-``, ``H-``, ``D-`` and ``P-`` of fairseq-generate on a row of a batch."""
        number, padding = sample["id"][row].item(), self._task.target_dictionary.pad()
        source = utils.strip_pad(sample["net_input"]["src_tokens"][row], padding)
        reference = self.text(utils.strip_pad(sample["target"][row], padding), escape_unk=True)
        scored = f"{log2_p(best)}\t{self.text(best['tokens'])}"
        scores = best["positional_scores"].div(math.log(2)).tolist()
        return (
            f"S-{number}\t{join_pieces(self._task.source_dictionary.string(source))}\nT-{number}\t{reference}\n"
            f"H-{number}\t{scored}\nD-{number}\t{scored}\n"
            f"P-{number}\t{' '.join(f'{score:.4f}' for score in scores)}\n"
        )


def log2_p(hypothesis: dict) -> float:
    """The score of a hypothesis as on lines ``H-``: log₂ p, normalised by its length."""
    return float(hypothesis["score"] / math.log(2))


@dataclass(frozen=True)
class TranslatedSplit:
    """The translations of a split."""

    texts: list[str]  # in corpus order, with pieces joined
    unfinished: list[int]  # numbers, from 0, of those that reached the limit of length
    log: str  # what fairseq-generate prints of them
    seconds: float  # of beam search


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
    identical. Raises UserError if the split is missing, corrupt, or has a sentence longer than the limit.

    Args:
        model, task: in evaluation mode; heads may be masked.
        subset: fairseq's name of the split.
        search: how to search.
        sentences: only the first N sentences of the split; None for all.
        left_out: numbers of sentences, from 0, that are not translated.
        description: label of the progress bar; None for the name of the split.
    """
    beam_search, dataset = BeamSearch([model], task, search), load_split(task, subset)
    lengths = check_lengths(dataset, subset, search.max_tokens, model, sentences, left_out=left_out)
    with data_utils.numpy_seed(_SEED):
        order = dataset.ordered_indices()
    order = order[np.isin(order, np.delete(np.arange(len(lengths)), list(left_out)))]
    multiple = DatasetConfig.required_batch_size_multiple
    texts, cut, log = {}, [], []
    with tqdm(total=len(order), desc=description or subset, unit="sentence", disable=None) as progress:
        for numbers in dataset.batch_by_size(order, search.max_tokens, required_batch_size_multiple=multiple):
            sample = dataset.collater([dataset[i] for i in numbers])
            for row, (best, *_) in enumerate(beam_search(sample)):
                number = sample["id"][row].item()
                texts[number] = beam_search.text(best["tokens"])
                cut += [number] if best["unfinished"] else []
                log.append(beam_search.log(sample, row, best))
            progress.update(len(numbers))
    return TranslatedSplit([texts[i] for i in sorted(texts)], sorted(cut), "".join(log), beam_search.seconds)


@dataclass(frozen=True)
class Options:
    """How test sets are translated and scored."""

    beam: int = 5
    length_penalty: float = 1.0  # fairseq's ``--lenpen``
    max_len_a: float | None = None  # see :func:`~.loading.translation_limit`
    max_len_b: int | None = None
    new_piece_penalty: float | Literal["valid"] | None = None
    """Of a post-editor; ``valid``: that of :data:`PENALTIES` with the lowest TER on the validation set."""
    max_tokens: int = 4096  # of a batch
    tokenize: str | None = None  # sacrebleu's tokenizer for BLEU; None for that of the language
    skip_long: bool = False
    """Leave out sentences longer than the model's limit: they are not scored, and their lines are empty."""
    truncate_source: bool = False  # cut sources longer than the model's limit
    cpu: bool = False
    int8: bool = False


@dataclass(frozen=True)
class Evaluation:
    """The scores of a test set, as in ``TEST_SET.json``, and the time in seconds that beam search took."""

    scores: dict
    seconds: float


def evaluate(
    checkpoint: Path, corpus: Corpus, test_sets: Iterable[str], output: Path, options: Options = Options()
) -> Iterator[Evaluation]:
    """Translate test sets one by one with any fairseq Transformer, and score each on detokenised text.

    For each test set, writes to ``output`` the translations (``TEST_SET.LANGUAGE``; for a tokenised corpus
    also ``TEST_SET.tok.LANGUAGE``), the scores (``TEST_SET.json``), and ``generate-SUBSET.txt``, with every
    sentence and its log-probabilities in the format of fairseq-generate.

    Yields the scores with their sacrebleu signatures. Lists of lines in them count from 1:
    ``unfinished_lines``, whose translations reached the limit of length; ``blank_lines``, sources without any
    piece, whose translation is empty; ``left_out_lines`` and ``truncated_lines``, see :class:`Options`.
    ``command`` is the fairseq-generate command that gives the same translations.

    Raises:
        UserError: checkpoint and corpus do not match; the test set (the public name of one, or ``valid``) or
            tokenizer is unknown; a sentence is longer than the model's limit, and neither left out nor cut.
    """
    evaluator = _Evaluator(checkpoint, corpus, test_sets, output, options)
    # Load all first, so that an error in one is noticed before any is translated.
    loaded = [(split, *evaluator.fit(split)) for split in evaluator.splits]
    for split, left_out, truncated in loaded:
        yield evaluator.evaluate(split, left_out, truncated)


class _Evaluator:
    """A model, and the test sets to translate with it."""

    def __init__(
        self, checkpoint: Path, corpus: Corpus, test_sets: Iterable[str], output: Path, options: Options
    ):
        if os.pathsep in str(checkpoint):
            raise UserError(f"{checkpoint}: fairseq takes {os.pathsep!r} for the end of a path; rename it")
        self.checkpoint, self.corpus, self.output, self.options = checkpoint, corpus, output, options
        state = load_checkpoint(checkpoint)
        self.direction = translation_direction(state, checkpoint, corpus)
        limit = translation_limit(state, corpus, options.max_len_a, options.max_len_b)
        self.about = {"checkpoint": str(checkpoint), "checkpoint_sha256": sha256(checkpoint)}
        self.about |= {"model": model_name(state), "corpus": corpus.name}
        self.splits = [ScoredSplit(corpus, name, self.direction, options.tokenize) for name in test_sets]
        self.model, self.task = load_model(
            checkpoint, corpus, self.direction, cpu=options.cpu, int8=options.int8
        )
        limit = limit.within(self.model.max_positions()[1])
        self.search = Search(options.beam, options.length_penalty, limit, options.max_tokens)
        self.search.check_beam(len(self.task.target_dictionary))
        self.penalty, self.penalties, self._on_valid = options.new_piece_penalty, None, None
        if self.penalty == "valid":
            self.penalties = self._penalties()
            self.penalty = min(self.penalties, key=self.penalties.__getitem__)
        penalise_new_pieces(self.model, self.penalty, checkpoint)

    def _penalties(self) -> dict[float, float]:
        """TER on the validation set by penalty; of equals, the smallest is kept in ``_on_valid``."""
        split, by_penalty = ScoredSplit(self.corpus, "valid", self.direction), {}
        left_out, _ = self.fit(split)
        for penalty in PENALTIES:
            penalise_new_pieces(self.model, penalty, self.checkpoint)
            translated = self._translate(split, left_out, f"penalty {penalty:g}")
            ter = split.scores(split.lines(translated.texts, left_out), left_out)["ter"]
            if not by_penalty or ter < min(by_penalty.values()):
                self._on_valid = translated
            by_penalty[penalty] = ter
        return by_penalty

    def _translate(
        self, split: ScoredSplit, left_out: list[int], label: str | None = None
    ) -> TranslatedSplit:
        options = {"left_out": left_out, "description": label}
        return translate_split(self.model, self.task, split.subset, self.search, **options)

    def fit(self, split: ScoredSplit) -> tuple[list[int], list[int]]:
        """Load a split that fits the model: the numbers, from 0, of sentences left out and truncated."""
        dataset, truncated = load_split(self.task, split.subset), []
        if self.options.truncate_source:
            settings, limit = self.task.cfg, self.model.max_positions()[0]
            truncated = np.flatnonzero(dataset.src_sizes > limit).tolist()
            settings.truncate_source, settings.max_source_positions = True, limit
            self.task.load_dataset(split.subset)
            settings.truncate_source = False
            dataset = self.task.dataset(split.subset)
        left_out = too_long(dataset, self.model) if self.options.skip_long else []
        check_lengths(dataset, split.name, self.options.max_tokens, self.model, left_out=left_out)
        return left_out, truncated

    def evaluate(self, split: ScoredSplit, left_out: list[int], truncated: list[int]) -> Evaluation:
        """Translate a split that fits, score it, and write its files."""
        options, limit = self.options, self.search.limit
        translated = self._on_valid if split.subset == "valid" else None
        if translated is None:
            translated = self._translate(split, left_out)
        lines = split.lines(translated.texts, left_out)
        blank = np.flatnonzero(self.task.dataset(split.subset).src_sizes == 1).tolist()
        about = {
            **self.about,
            "test_set": split.name,
            "direction": "-".join(self.direction),
            "sentences": len(lines),
            "left_out_lines": _from_one(left_out) if options.skip_long else None,
            "truncated_lines": _from_one(truncated) if options.truncate_source else None,
            "blank_lines": _from_one(blank),
            "beam": options.beam,
            "length_penalty": options.length_penalty,
            "max_len_a": limit.a,
            "max_len_b": limit.b,
            "unfinished_lines": _from_one(translated.unfinished),
            "new_piece_penalty": self.penalty,
            "new_piece_penalties": self.penalties and {f"{x:g}": ter for x, ter in self.penalties.items()},
            "int8": options.int8 or None,
            "command": self._command(split, left_out, truncated),
            "case": split.case,
            "references": split.references_name,
            **split.scores(lines, left_out),
        }
        scores = {key: value for key, value in about.items() if value is not None}
        path = self.output / f"{split.name}.json"
        # Whatever ends the process before the scores are written, those of other translations do not stay.
        path.unlink(missing_ok=True)
        write_text(self.output / f"generate-{split.subset}.txt", translated.log)
        if split.tokenised:
            write_text(self.output / f"{split.name}.tok.{split.target}", _joined(lines, left_out))
        write_text(self.output / f"{split.name}.{split.target}", _joined(split.natural(lines), left_out))
        write_json(path, scores)
        return Evaluation(scores, translated.seconds)

    def _command(self, split: ScoredSplit, left_out: list[int], truncated: list[int]) -> str:
        """The fairseq-generate command that gives the same translations."""
        options, limit, (source, target) = self.options, self.search.limit, self.direction
        words = ["fairseq-generate", self.corpus.bin, "--user-dir", PLUGIN, "--path", self.checkpoint]
        words += ["--gen-subset", split.subset, "--source-lang", source, "--target-lang", target]
        words += ["--remove-bpe", "sentencepiece", "--beam", options.beam]
        words += ["--lenpen", options.length_penalty, "--max-tokens", options.max_tokens]
        words += ["--max-len-a", limit.a] if limit.a else []
        words += ["--max-len-b", limit.b] if limit.b != MIN_DEFAULT else []
        # In one flag: of several, fairseq takes the last.
        overrides = {} if self.penalty is None else {"new_piece_penalty": self.penalty}
        overrides |= {"int8": True} if options.int8 else {}
        words += ["--model-overrides", overrides] if overrides else []
        words += ["--skip-invalid-size-inputs-valid-test"] if left_out else []
        words += ["--truncate-source"] if truncated else []
        usual = TranslationConfig.max_source_positions, TranslationConfig.max_target_positions
        for side, most, default in zip(("source", "target"), self.model.max_positions(), usual):
            if most > default or (side == "source" and truncated):
                words += [f"--max-{side}-positions", most]
        words += ["--cpu"] if options.int8 else []
        return shlex.join(map(str, words))


def _from_one(numbers: list[int]) -> list[int]:
    """Lines counted from 1, of sentences counted from 0."""
    return [number + 1 for number in numbers]


def _joined(lines: list[str], left_out: Collection[int]) -> str:
    """A line per sentence of the split; the lines of sentences left out are empty."""
    rest, count = iter(lines), len(lines) + len(left_out)
    return "".join(("" if number in left_out else next(rest)) + "\n" for number in range(count))
