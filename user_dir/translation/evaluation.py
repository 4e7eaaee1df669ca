"""Translation of test sets by beam search, scored by sacrebleu."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from fairseq.tasks.translation import TranslationConfig

from ..checkpoints import load_checkpoint, model_name
from ..config import PLUGIN
from ..corpora import Corpus
from ..corpora.binarised import read_dictionary
from ..corpora.checksums import sha256
from ..errors import UserError
from ..io import check_output, make_folder, unchanged, within, write_json, write_text
from .ceiling import LOW, ceiling_of
from .comet import Comet
from .direction import translation_direction
from .limits import MIN_DEFAULT, translation_limit
from .loading import (
    check_lengths,
    load_model,
    load_split,
    penalise_new_pieces,
    too_long,
)
from .scored_split import ScoredSplit
from .search import Search, check_beam
from .split_search import translate_split

PENALTIES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
REMEDY = "; use --skip-long to leave such sentences out, or --truncate-source to cut long sources"


@dataclass(frozen=True)
class Options:
    """How test sets are translated and scored.

    Attributes:
        beam: beam size.
        length_penalty: fairseq's ``--lenpen``.
        max_len_a: limit of the length of translations, see :func:`~.limits.translation_limit`.
        max_len_b: see ``max_len_a``.
        new_piece_penalty: of a post-editor, see :func:`~.loading.penalise_new_pieces`; ``valid``: that of
            :data:`PENALTIES` with the lowest TER on the validation set, the smallest of equals.
        max_tokens: batch size in tokens.
        tokenize: sacrebleu's tokenizer for BLEU; None for that of the language.
        skip_long: leave out sentences longer than the model's limit: they are not scored, their lines among
            the translations are empty, and ``left_out_lines`` lists them, counted from 1.
        truncate_source: truncate sources longer than the model's limit; ``truncated_lines`` lists them.
        cpu: do not use a GPU.
        int8: translate on the CPU with linear layers in 8-bit integers.
        comet: folder of a COMET model to score with as well, see :class:`~.comet.Comet`.
    """

    beam: int = 5
    length_penalty: float = 1.0
    max_len_a: float | None = None
    max_len_b: int | None = None
    new_piece_penalty: float | Literal["valid"] | None = None
    max_tokens: int = 4096
    tokenize: str | None = None
    skip_long: bool = False
    truncate_source: bool = False
    cpu: bool = False
    int8: bool = False
    comet: Path | None = None


@dataclass(frozen=True)
class Evaluation:
    """The scores of a test set, as in ``TEST_SET.json``, and the time that beam search took."""

    scores: dict
    seconds: float


def evaluate(
    checkpoint: Path, corpus: Corpus, test_sets: Iterable[str], output: Path, options: Options | None = None
) -> Iterator[Evaluation]:
    """Translate test sets one by one with any fairseq Transformer, and score each on detokenised text.

    For each test set, writes to ``output`` the translations (``TEST_SET.LANGUAGE``; for a tokenised corpus
    also ``TEST_SET.tok.LANGUAGE``), the scores (``TEST_SET.json``), and ``generate-SUBSET.txt``, with every
    sentence and its log-probabilities in the format of fairseq-generate.

    Yields the scores with their sacrebleu signatures, by references of sacrebleu if the corpus names one of
    its test sets and it is on this machine. ``unfinished_lines`` lists, counted from 1, the translations that
    reached the limit of length; ``blank_lines`` the sources without any piece, whose translation is empty,
    and scored as such. ``ceiling`` is the BLEU of the references themselves through the pieces, where it is
    below 99. ``command`` is the fairseq-generate command that gives the same translations.

    Raises:
        UserError: checkpoint and corpus do not match; the test set (the public name of one, or ``valid``) or
            tokenizer is unknown; a sentence is longer than the model's limit, and neither left out nor cut.
    """
    evaluator = _Evaluator(checkpoint, corpus, list(test_sets), output, options or Options())
    # Load all first, so that an error in one is noticed before any is translated.
    loaded = [(split, *evaluator.fit(split)) for split in evaluator.splits]
    make_folder(output)
    for split, left_out, truncated in loaded:
        yield evaluator.evaluate(split, left_out, truncated)


class _Evaluator:
    """A model, and the test sets to translate with it, whose files can be written."""

    def __init__(
        self, checkpoint: Path, corpus: Corpus, test_sets: list[str], output: Path, options: Options
    ):
        if os.pathsep in str(checkpoint):
            raise UserError(
                f"{checkpoint}: fairseq would take the {os.pathsep!r} for the end of a path; rename it"
            )
        self.checkpoint, self.corpus, self.output, self.options = checkpoint, corpus, output, options
        self.comet = None if options.comet is None else Comet(options.comet, cpu=options.cpu)
        with unchanged(checkpoint):
            state = load_checkpoint(checkpoint)
            self.direction = translation_direction(state, checkpoint, corpus)
            self.limit = translation_limit(state, corpus, options.max_len_a, options.max_len_b)
            name = model_name(state)
            del state
            check_beam(options.beam, len(read_dictionary(corpus.bin, self.direction[1])))
            self.splits = list(map(self._split, test_sets))
            digest = sha256(checkpoint)
            self.model, self.task = load_model(
                checkpoint, corpus, self.direction, cpu=options.cpu, int8=options.int8
            )
        self.limit = self.limit.within(self.model.max_positions()[1])
        self.penalty, self.penalties, self._on_valid = options.new_piece_penalty, None, None
        if self.penalty == "valid":
            self.penalties = self._penalties()
            self.penalty = min(self.penalties, key=self.penalties.__getitem__)
        penalise_new_pieces(self.model, self.penalty, checkpoint)
        self.about = {"checkpoint": str(checkpoint), "checkpoint_sha256": digest}
        self.about |= {"model": name, "corpus": corpus.name}

    def _split(self, name: str) -> ScoredSplit:
        corpus = self.corpus
        if name not in corpus.subsets:
            raise UserError(f"{corpus.name} has no test set {name!r}; it has {', '.join(corpus.test_sets)}")
        split = ScoredSplit(corpus, name, self.direction, self.options.tokenize)
        for path in self._files(split).values():
            check_output(path, [self.checkpoint, corpus.raw, *corpus.written])
        return split

    def _files(self, split: ScoredSplit) -> dict[str, Path]:
        """The files that are written for a split, by what they hold."""
        names = {"search": f"generate-{split.subset}.txt", "scores": f"{split.name}.json"}
        names |= {"text": f"{split.name}.{split.target}"}
        names |= {"tokens": f"{split.name}.tok.{split.target}"} if split.tokenised else {}
        return {kind: self.output / name for kind, name in names.items()}

    def _penalties(self) -> dict[float, float]:
        """TER on the validation set by penalty."""
        split, found = ScoredSplit(self.corpus, "valid", self.direction), {}
        left_out, _ = self.fit(split)
        for penalty in PENALTIES:
            penalise_new_pieces(self.model, penalty, self.checkpoint)
            what = {"left_out": left_out, "description": f"penalty {penalty:g}"}
            translated = translate_split(self.model, self.task, split.subset, self._search, **what)
            ter = split.scores(split.lines(translated.texts, left_out), left_out)["ter"]
            if not found or ter < min(found.values()):
                self._on_valid = translated
            found[penalty] = ter
        return found

    @property
    def _search(self) -> Search:
        options = self.options
        return Search(options.beam, options.length_penalty, self.limit, options.max_tokens)

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
        most = self.options.max_tokens
        check_lengths(dataset, split.name, most, self.model, left_out=left_out, remedy=REMEDY)
        return left_out, truncated

    def evaluate(self, split: ScoredSplit, left_out: list[int], truncated: list[int]) -> Evaluation:
        """Translate a split that fits, score it, and write its files."""
        options = self.options
        found = self._on_valid if split.subset == "valid" else None
        if found is None:
            found = translate_split(self.model, self.task, split.subset, self._search, left_out=left_out)
        lines = split.lines(found.texts, left_out)
        scores, ceiling = split.scores(lines, left_out), ceiling_of(self.corpus, split, left_out).bleu
        files = {kind: within(self.output, path) for kind, path in self._files(split).items()}
        # Whatever ends the process before the scores are written, those of other translations do not stay.
        files["scores"].unlink(missing_ok=True)
        write_text(files["search"], found.as_fairseq_writes_it())
        if split.tokenised:
            write_text(files["tokens"], _joined(lines, left_out))
        write_text(files["text"], _joined(split.natural(lines), left_out))
        blank = np.flatnonzero(self.task.dataset(split.subset).src_sizes == 1).tolist()
        known = {
            **self.about,
            "test_set": split.name,
            "direction": "-".join(self.direction),
            "sentences": len(lines),
            "left_out_lines": _lines(left_out) if options.skip_long else None,
            "truncated_lines": _lines(truncated) if options.truncate_source else None,
            "blank_lines": _lines(blank),
            "beam": options.beam,
            "length_penalty": options.length_penalty,
            "max_len_a": self.limit.a,
            "max_len_b": self.limit.b,
            "unfinished_lines": _lines(found.unfinished),
            "new_piece_penalty": self.penalty,
            "new_piece_penalties": self.penalties and {f"{x:g}": ter for x, ter in self.penalties.items()},
            "int8": options.int8 or None,
            "command": self._command(split, left_out, truncated),
            "case": split.case,
            "references": split.references_name,
            "ceiling": ceiling if ceiling < LOW else None,
        }
        scores = {key: value for key, value in known.items() if value is not None} | scores
        if self.comet is not None:
            scores |= split.comet(self.comet, lines, left_out)
        write_json(files["scores"], scores)
        return Evaluation(scores, found.seconds)

    def _command(self, split: ScoredSplit, left_out: list[int], truncated: list[int]) -> str:
        """The fairseq-generate command that gives the same translations."""
        options, (source, target) = self.options, self.direction
        words = ["fairseq-generate", str(self.corpus.bin), "--user-dir", str(PLUGIN)]
        words += ["--path", str(self.checkpoint), "--gen-subset", split.subset, "--source-lang", source]
        words += ["--target-lang", target, "--remove-bpe", "sentencepiece", "--beam", str(options.beam)]
        words += ["--lenpen", str(options.length_penalty), "--max-tokens", str(options.max_tokens)]
        words += ["--max-len-a", str(self.limit.a)] if self.limit.a else []
        words += ["--max-len-b", str(self.limit.b)] if self.limit.b != MIN_DEFAULT else []
        # In one flag: of several, fairseq takes the last.
        overrides = {} if self.penalty is None else {"new_piece_penalty": self.penalty}
        overrides |= {"int8": True} if options.int8 else {}
        words += ["--model-overrides", str(overrides)] if overrides else []
        words += _length_flags(self.model, left_out, truncated)
        words += ["--cpu"] if options.int8 else []
        return shlex.join(words)


def _length_flags(model, left_out: list[int], truncated: list[int]) -> list[str]:
    """The flags with which fairseq-generate leaves out and truncates the same sentences."""
    flags = ["--skip-invalid-size-inputs-valid-test"] if left_out else []
    flags += ["--truncate-source"] if truncated else []
    usual = TranslationConfig.max_source_positions, TranslationConfig.max_target_positions
    for side, limit, default in zip(("source", "target"), model.max_positions(), usual):
        if limit > default or (side == "source" and truncated):
            flags += [f"--max-{side}-positions", str(limit)]
    return flags


def _lines(numbers: list[int]) -> list[int]:
    """Lines counted from 1, of sentences counted from 0."""
    return [number + 1 for number in numbers]


def _joined(lines: list[str], left_out: Collection[int]) -> str:
    """A line per sentence of the split; the lines of sentences left out are empty."""
    rest = iter(lines)
    count = len(lines) + len(left_out)
    return "".join(("" if number in left_out else next(rest)) + "\n" for number in range(count))
