"""Translation of test sets by beam search, scored by sacrebleu."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fairseq.tasks.translation import TranslationConfig

from ..checkpoints import load_checkpoint, model_name
from ..config import PLUGIN
from ..corpora import Corpus
from ..corpora.binarised import read_dictionary
from ..corpora.checksums import checksums
from ..errors import UserError
from ..io import check_output, make_folder, unchanged, within, write_json, write_text
from .ceiling import LOW, ceiling_of
from .limits import MIN_DEFAULT, translation_limit
from .loading import (
    check_lengths,
    load_model,
    load_split,
    penalise_new_pieces,
    too_long,
    translation_direction,
)
from .scored_split import ScoredSplit
from .split_search import check_beam, translate_split

REMEDY = "; use --skip-long to leave such sentences out, or --truncate-source to cut long sources"


@dataclass(frozen=True)
class Evaluation:
    """The scores of a test set, as in ``TEST_SET.json``, and the time that beam search took."""

    scores: dict
    seconds: float


def evaluate(
    checkpoint: Path,
    corpus: Corpus,
    test_sets: Iterable[str],
    output: Path,
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    max_len_a: float | None = None,
    max_len_b: int | None = None,
    new_piece_penalty: float | None = None,
    max_tokens: int = 4096,
    tokenize: str | None = None,
    skip_long: bool = False,
    truncate_source: bool = False,
    cpu: bool = False,
    int8: bool = False,
) -> Iterator[Evaluation]:
    """Translate test sets one by one, and score each on detokenised text.

    For each test set, writes to ``output`` the translations (``TEST_SET.LANGUAGE``; for a tokenised corpus
    also ``TEST_SET.tok.LANGUAGE``), the scores (``TEST_SET.json``), and ``generate-SUBSET.txt``, with every
    sentence and its log-probabilities in the format of fairseq-generate.

    Args:
        checkpoint: of this plugin's model or of any other fairseq Transformer.
        corpus: a prepared corpus; the direction is the checkpoint's.
        test_sets: public names of test sets, or ``valid``.
        output: folder to write to.
        beam: beam size.
        length_penalty: fairseq's ``--lenpen``.
        max_len_a: limit of the length of translations, see :func:`~.limits.translation_limit`.
        max_len_b: see ``max_len_a``.
        new_piece_penalty: of a post-editor, see :func:`~.loading.penalise_new_pieces`.
        max_tokens: batch size in tokens.
        tokenize: sacrebleu's tokenizer for BLEU; None for that of the language.
        skip_long: leave out sentences longer than the model's limit: they are not scored, their lines
            among the translations are empty, and ``left_out_lines`` lists them, counted from 1.
        truncate_source: truncate sources longer than the model's limit; ``truncated_lines`` lists them.
        cpu: do not use a GPU.
        int8: translate on the CPU with linear layers in 8-bit integers.

    Yields:
        The scores with their sacrebleu signatures. References are sacrebleu's if the corpus names one of
        its test sets and it is on this machine. ``unfinished_lines`` lists, counted from 1, the translations
        that reached the limit of length; ``blank_lines`` the sources without any piece, whose translation
        is empty, and scored as such. ``ceiling`` is the BLEU of the references themselves through the
        pieces, where it is below 99. ``command`` is the fairseq-generate command that gives the same
        translations.

    Raises:
        UserError: checkpoint and corpus do not match; the test set or tokenizer is unknown; a sentence is
            longer than the model's limit, and neither left out nor truncated.
    """
    if os.pathsep in str(checkpoint):
        raise UserError(
            f"{checkpoint}: fairseq would take the {os.pathsep!r} for the end of a path; rename it"
        )
    with unchanged(checkpoint):
        state = load_checkpoint(checkpoint)
        name, direction = model_name(state), translation_direction(state, checkpoint, corpus)
        limit = translation_limit(state, corpus, max_len_a, max_len_b)
        del state
        check_beam(beam, len(read_dictionary(corpus.bin, direction[1])))
        splits = [_split(corpus, test_set, direction, tokenize) for test_set in test_sets]
        for path in (path for split in splits for path in _files(output, split)):
            check_output(path, [checkpoint, corpus.raw, *corpus.written])
        digest = checksums(checkpoint, ["sha256"])["sha256"]
        model, task = load_model(checkpoint, corpus, direction, cpu=cpu, int8=int8)
    penalise_new_pieces(model, new_piece_penalty, checkpoint)
    # Load all first, so that an error in one is noticed before any is translated.
    fitted = [_fit(model, task, split, max_tokens, skip_long, truncate_source) for split in splits]
    make_folder(output)
    for split, (left_out, truncated) in zip(splits, fitted):
        found = translate_split(
            model,
            task,
            split.subset,
            beam=beam,
            length_penalty=length_penalty,
            limit=limit,
            max_tokens=max_tokens,
            left_out=left_out,
        )
        write_text(within(output, output / f"generate-{split.subset}.txt"), found.as_fairseq_writes_it())
        lines = split.lines(found.texts)
        scores, ceiling = split.scores(lines, left_out), ceiling_of(corpus, split)
        if split.tokenised:
            path = within(output, output / f"{split.name}.tok.{split.target}")
            write_text(path, _joined(lines, left_out))
        path = within(output, output / f"{split.name}.{split.target}")
        write_text(path, _joined(split.natural(lines), left_out))
        command = ["fairseq-generate", str(corpus.bin), "--user-dir", str(PLUGIN), "--path", str(checkpoint)]
        command += ["--gen-subset", split.subset, "--source-lang", direction[0]]
        command += ["--target-lang", direction[1], "--remove-bpe", "sentencepiece", "--beam", str(beam)]
        command += ["--lenpen", str(length_penalty), "--max-tokens", str(max_tokens)]
        command += ["--max-len-a", str(limit.a)] if limit.a else []
        command += ["--max-len-b", str(limit.b)] if limit.b != MIN_DEFAULT else []
        if new_piece_penalty is not None:
            command += ["--model-overrides", f"{{'new_piece_penalty': {new_piece_penalty}}}"]
        command += _length_flags(model, left_out, truncated)
        command += ["--cpu", "--model-overrides", "{'int8': True}"] if int8 else []
        asked = {"left_out_lines": (skip_long, left_out), "truncated_lines": (truncate_source, truncated)}
        scores = {
            "checkpoint": str(checkpoint),
            "checkpoint_sha256": digest,
            "model": name,
            "corpus": corpus.name,
            "test_set": split.name,
            "direction": "-".join(direction),
            "sentences": len(lines),
            **{key: [number + 1 for number in numbers] for key, (given, numbers) in asked.items() if given},
            "blank_lines": (np.flatnonzero(task.dataset(split.subset).src_sizes == 1) + 1).tolist(),
            "beam": beam,
            "length_penalty": length_penalty,
            "max_len_a": limit.a,
            "max_len_b": limit.b,
            "unfinished_lines": [number + 1 for number in found.unfinished],
            **({} if new_piece_penalty is None else {"new_piece_penalty": new_piece_penalty}),
            **({"int8": True} if int8 else {}),
            "command": shlex.join(command),
            "references": split.references_name,
            **({"ceiling": ceiling.bleu} if ceiling.bleu < LOW else {}),
            **scores,
        }
        write_json(within(output, output / f"{split.name}.json"), scores)
        yield Evaluation(scores, found.seconds)


def _split(corpus: Corpus, test_set: str, direction: tuple[str, str], tokenize: str | None) -> ScoredSplit:
    if test_set not in corpus.subsets:
        raise UserError(f"{corpus.name} has no test set {test_set!r}; it has {', '.join(corpus.test_sets)}")
    return ScoredSplit(corpus, test_set, direction, tokenize)


def _files(output: Path, split: ScoredSplit) -> list[Path]:
    """The files that are written for a split."""
    names = [f"generate-{split.subset}.txt", f"{split.name}.{split.target}", f"{split.name}.json"]
    names += [f"{split.name}.tok.{split.target}"] if split.tokenised else []
    return [output / name for name in names]


def _fit(
    model, task, split: ScoredSplit, max_tokens: int, skip_long: bool, truncate_source: bool
) -> tuple[list[int], list[int]]:
    """Load a split that fits the model; returns the numbers, from 0, of sentences left out and truncated."""
    dataset, truncated = load_split(task, split.subset), []
    limit = model.max_positions()[0]
    if truncate_source:
        truncated = np.flatnonzero(dataset.src_sizes > limit).tolist()
        task.cfg.truncate_source, task.cfg.max_source_positions = True, limit
        task.load_dataset(split.subset)
        task.cfg.truncate_source = False
        dataset = task.dataset(split.subset)
    left_out = too_long(dataset, model) if skip_long else []
    check_lengths(dataset, split.name, max_tokens, model, left_out=left_out, remedy=REMEDY)
    return left_out, truncated


def _length_flags(model, left_out: list[int], truncated: list[int]) -> list[str]:
    """The flags with which fairseq-generate leaves out and truncates the same sentences."""
    flags = ["--skip-invalid-size-inputs-valid-test"] if left_out else []
    flags += ["--truncate-source"] if truncated else []
    usual = TranslationConfig.max_source_positions, TranslationConfig.max_target_positions
    for side, limit, default in zip(("source", "target"), model.max_positions(), usual):
        if limit > default or (side == "source" and truncated):
            flags += [f"--max-{side}-positions", str(limit)]
    return flags


def _joined(lines: list[str], left_out: Collection[int]) -> str:
    """A line per sentence of the split; the lines of sentences left out are empty."""
    rest = iter(lines)
    count = len(lines) + len(left_out)
    return "".join(("" if number in left_out else next(rest)) + "\n" for number in range(count))
