"""The stage that decides on the pieces: learned from the training text, or those of a corpus or a BERT."""

from __future__ import annotations

import filecmp
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError
from . import stamps
from .corpus import Corpus, load_corpus
from .description import MAX_INTEGER
from .learning import SizeError, suitable_size, train_model
from .readers import read_made_lines
from .reserved import SYMBOLS
from .sampling import sample
from .text_stages import text_fingerprint
from .wordpiece import WordPieces

logger = logging.getLogger(__name__)


def make_model(corpus: Corpus, vocabulary_size: int | None, force: bool) -> None:
    """Train ``spm.model`` and ``spm.vocab``, copy those of another corpus, or check the vocabulary of a BERT.

    Without ``vocabulary_size``, the size given in an earlier run is kept, because checkpoints depend on it.
    """
    stamp, other = corpus.folder / "spm.json", corpus.description.pieces_of
    if vocabulary_size is not None and (other or corpus.description.wordpiece):
        whose = f"pieces of {other}" if other else "vocabulary of a BERT"
        raise UserError(f"--vocab-size {vocabulary_size}: {corpus.name} has the {whose}; omit it")
    if other:
        _copy_model(corpus, stamp, force)
    elif corpus.description.wordpiece:
        size = len(WordPieces(corpus.pieces).tokens)
        inputs = {"text": text_fingerprint(corpus), "vocabulary_size": size}
        if not stamps.is_done("WordPiece vocabulary", stamp, inputs, force):
            with stamps.building(stamp, inputs, corpus.folder):
                logger.info("WordPiece vocabulary: %s tokens", f"{size:,}")
    else:
        _learn_model(corpus, stamp, vocabulary_size, force)


def _learn_model(corpus: Corpus, stamp: Path, vocabulary_size: int | None, force: bool) -> None:
    description, before = corpus.description, stamps.read_stamp(stamp)
    chosen = vocabulary_size or _valid_size(before.get("report", {}).get("chosen_size"))
    if chosen and not vocabulary_size:
        logger.info("sentencepiece: keeping the vocabulary size %s of an earlier --vocab-size", f"{chosen:,}")
    fixed = chosen or description.vocabulary_size
    text = text_fingerprint(corpus)
    settings = {
        "vocabulary_size": fixed or _derived_size(corpus, text, before.get("inputs", {})),
        **{
            key: getattr(description, key) for key in ("character_coverage", "normalization", "byte_fallback")
        },
    }
    most = description.learn_from
    inputs = {"text": text, **settings, "learn_from": most}
    if description.triplets or description.pretraining:
        settings["symbols"] = inputs["symbols"] = list(SYMBOLS)
    if stamps.is_done("sentencepiece model", stamp, inputs, force):
        return
    logger.info(
        "sentencepiece: learning %s pieces from the training text", f"{settings['vocabulary_size']:,}"
    )
    with stamps.building(stamp, inputs, corpus.folder) as build:
        count = sum(1 for _ in _training_text(corpus))
        build.report = {"chosen_size": chosen, "sentences": count, "learned_from": min(count, most)}
        if count > most:
            logger.info("sentencepiece: a random sample of %s of %s sentences", f"{most:,}", f"{count:,}")
        model = build.folder / "spm.model"
        inputs["vocabulary_size"] = _train(corpus, model, settings, count, fixed is not None)
        _begin_again_if_changed(corpus, model)


def _valid_size(size: object) -> int | None:
    return size if type(size) is int and 1 <= size <= MAX_INTEGER else None


def _derived_size(corpus: Corpus, text: str, before: dict[str, Any]) -> int:
    """The size of a corpus whose description has none: as before for the same text, or by its pairs."""
    pairs = _pairs(corpus)
    suitable = suitable_size(pairs)
    reason = f"{pairs:,} training pairs; --vocab-size N or vocabulary_size in corpus.yaml overrides"
    kept = _valid_size(before.get("vocabulary_size")) if before.get("text") == text else None
    if kept is None:
        logger.info("sentencepiece: a vocabulary of %s pieces suits %s", f"{suitable:,}", reason)
    elif kept != suitable:
        logger.info(
            "sentencepiece: keeping the %s pieces of an earlier run, for the checkpoints trained with them "
            "(%s suit %s)",
            *(f"{kept:,}", f"{suitable:,}", reason),
        )
    return kept or suitable


def _pairs(corpus: Corpus) -> int:
    return stamps.read_stamp(corpus.folder / "text" / "stamp.json")["report"]["train"]["pairs"]


def _train(corpus: Corpus, model: Path, settings: dict[str, Any], count: int, fixed: bool) -> int:
    """Learn pieces from ``count`` sentences; returns their number.

    Unless it is ``fixed``, it becomes what a small text has, and grows by the characters of a varied one.
    """
    size = settings["vocabulary_size"]
    while True:
        text = sample(_training_text(corpus), count, corpus.description.learn_from)
        try:
            train_model(text, model, **{**settings, "vocabulary_size": size})
            return size
        except SizeError as error:
            if fixed:
                raise UserError(f"{error}{_advice(corpus, error)}") from None
            if error.largest is not None:
                size, reason = error.largest, "the training text has no more"
            else:
                size, reason = size + error.smallest, f"{error.smallest:,} are single characters"
        logger.info("sentencepiece: %s pieces, because %s", f"{size:,}", reason)


def _advice(corpus: Corpus, error: SizeError) -> str:
    """The size that suits the corpus, where it is possible."""
    pairs = _pairs(corpus)
    suitable = suitable_size(pairs)
    fits = suitable < error.largest if error.largest is not None else suitable > error.smallest
    return f", such as {suitable} for its {pairs:,} pairs" if fits else ""


def _training_text(corpus: Corpus) -> Iterator[str]:
    """Every sentence to learn from."""
    for path in [corpus.normalised("train", each) for each in corpus.languages] + pretraining_text(corpus)[
        :1
    ]:
        yield from filter(str.strip, read_made_lines(path))


def _begin_again_if_changed(corpus: Corpus, model: Path) -> None:
    """Warn if the pieces are not those of before, and remove the stamps of all that was made with them.

    Otherwise an interrupted ``--force`` would leave the new pieces beside text in the old ones.
    """
    before, now = (each.with_suffix(".vocab") for each in (corpus.spm_model, model))
    if before.is_file() and not _same(before, now):
        logger.warning("warning: the vocabulary changes; checkpoints trained with the old one no longer fit")
        for folder in (corpus.segmented, corpus.bin, corpus.pretraining):
            (folder / "stamp.json").unlink(missing_ok=True)


def _copy_model(corpus: Corpus, stamp: Path, force: bool) -> None:
    """Copy the sentencepiece model of the corpus whose pieces are used."""
    other = other_corpus(corpus)
    theirs = other.folder / "spm.json"
    if not other.spm_model.is_file() or not stamps.read_stamp(other.bin / "stamp.json"):
        raise corpus.description.error(
            "pieces_of", f"pieces_of: {other.name} is not prepared; prepare it first"
        )
    inputs = {
        "pieces_of": stamps.fingerprint(theirs),
        "text": text_fingerprint(corpus),
        "vocabulary_size": stamps.read_stamp(theirs)["inputs"].get("vocabulary_size"),
    }
    pieces = (other.spm_model, other.spm_model.with_suffix(".vocab"))
    changed = not all(_same(path, corpus.folder / path.name) for path in pieces)
    if stamps.is_done("sentencepiece model", stamp, inputs, force or changed):
        return
    with stamps.building(stamp, inputs, corpus.folder) as build:
        for path in pieces:
            shutil.copyfile(path, build.folder / path.name)
        _begin_again_if_changed(corpus, build.folder / other.spm_model.name)


def _same(one: Path, other: Path) -> bool:
    return all(path.is_file() for path in (one, other)) and filecmp.cmp(one, other, shallow=False)


def other_corpus(corpus: Corpus) -> Corpus | None:
    """The corpus beside this one whose pieces and dictionary are used, if any."""
    name = corpus.description.pieces_of
    return None if name is None else load_corpus(name, corpus.folder.parent)


def pretraining_text(corpus: Corpus) -> list[Path]:
    """The text for masked language modelling, to train on and to validate; none for most corpora."""
    folder = corpus.folder / "text" / "pretraining"
    return [folder / "train.txt", folder / "valid.txt"] if corpus.description.pretraining else []
