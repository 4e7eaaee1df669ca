"""The stage that decides on the pieces: learned from the training text, or those of a corpus or a BERT."""

from __future__ import annotations

import filecmp
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError
from . import pretraining, stamps
from .corpus import Corpus, load_corpus
from .description import MAX_INTEGER
from .learning import train_model
from .readers import read_made_lines
from .reserved import SYMBOLS
from .sampling import sample
from .text_stages import text_fingerprint
from .wordpiece import read_vocabulary

logger = logging.getLogger(__name__)


def make_model(corpus: Corpus, vocabulary_size: int | None, force: bool) -> None:
    """Train ``spm.model`` and ``spm.vocab`` on the training text.

    Without ``vocabulary_size``, the size given in an earlier run is kept, because checkpoints depend on it.
    """
    stamp = corpus.folder / "spm.json"
    if corpus.description.pieces_of:
        return _copy_model(corpus, stamp, vocabulary_size, force)
    if corpus.description.wordpiece:
        return _take_vocabulary(corpus, stamp, vocabulary_size, force)
    last = stamps.read_stamp(stamp)
    before = last.get("report", {}).get("chosen_size")
    chosen = vocabulary_size or (before if type(before) is int and 1 <= before <= MAX_INTEGER else None)
    if chosen and not vocabulary_size:
        logger.info("sentencepiece: keeping the vocabulary size %s of an earlier --vocab-size", f"{chosen:,}")
    settings = {
        "vocabulary_size": chosen or corpus.description.vocabulary_size,
        "character_coverage": corpus.description.character_coverage,
        "normalization": corpus.description.normalization,
        "byte_fallback": corpus.description.byte_fallback,
        "learn_from": corpus.description.learn_from,
    }
    reserved = SYMBOLS if corpus.description.triplets or corpus.description.pretraining else ()
    inputs = {"text": text_fingerprint(corpus), **settings}
    if reserved:
        inputs["symbols"] = list(reserved)
    if stamps.is_whole(stamp, inputs) and not force:
        return skip("sentencepiece model")
    logger.info(
        "sentencepiece: learning %s pieces from the training text", f"{settings['vocabulary_size']:,}"
    )
    with stamps.building(stamp, inputs, corpus.folder) as build:
        most = settings.pop("learn_from")
        texts = [corpus.normalised("train", each) for each in corpus.languages]
        texts += [path for subset, path in pretraining_text(corpus).items() if subset == "train"]
        count = sum(1 for _ in _sentences(texts))
        build.report = {"chosen_size": chosen, "sentences": count, "learned_from": min(count, most)}
        if count > most:
            logger.info("sentencepiece: a random sample of %s of %s sentences", f"{most:,}", f"{count:,}")
        model = build.folder / "spm.model"
        train_model(sample(_sentences(texts), count, most), model, **settings, symbols=reserved)
        _begin_again_if_changed(corpus, model)
    return None


def _sentences(texts: list[Path]) -> Iterator[str]:
    for path in texts:
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


def _copy_model(corpus: Corpus, stamp: Path, vocabulary_size: int | None, force: bool) -> None:
    """Copy the sentencepiece model of the corpus whose pieces are used."""
    other = other_corpus(corpus)
    theirs = other.folder / "spm.json"
    if vocabulary_size is not None:
        raise UserError(
            f"--vocab-size {vocabulary_size}: {corpus.name} has the pieces of {other.name}; omit it"
        )
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
    theirs_still = all(_same(path, corpus.folder / path.name) for path in pieces)
    if stamps.is_whole(stamp, inputs) and theirs_still and not force:
        return skip("sentencepiece model")
    with stamps.building(stamp, inputs, corpus.folder) as build:
        for path in pieces:
            shutil.copyfile(path, build.folder / path.name)
        _begin_again_if_changed(corpus, build.folder / other.spm_model.name)
    return None


def _same(one: Path, other: Path) -> bool:
    return all(path.is_file() for path in (one, other)) and filecmp.cmp(one, other, shallow=False)


def other_corpus(corpus: Corpus) -> Corpus | None:
    """The corpus beside this one whose pieces and dictionary are used, if any."""
    name = corpus.description.pieces_of
    return None if name is None else load_corpus(name, corpus.folder.parent)


def _take_vocabulary(corpus: Corpus, stamp: Path, vocabulary_size: int | None, force: bool) -> None:
    """Validate the WordPiece vocabulary, which is part of the text, instead of learning pieces."""
    if vocabulary_size is not None:
        raise UserError(
            f"--vocab-size {vocabulary_size}: {corpus.name} has the vocabulary of a BERT; omit it"
        )
    inputs = {"text": text_fingerprint(corpus), "vocabulary_size": len(read_vocabulary(corpus.pieces))}
    if stamps.is_whole(stamp, inputs) and not force:
        return skip("WordPiece vocabulary")
    with stamps.building(stamp, inputs, corpus.folder):
        logger.info("WordPiece vocabulary: %s tokens", f"{inputs['vocabulary_size']:,}")
    return None


def pretraining_text(corpus: Corpus) -> dict[str, Path]:
    """The text for masked language modelling by subset; empty if the corpus has none."""
    folder = corpus.folder / "text" / "pretraining"
    names = pretraining.SUBSETS if corpus.description.pretraining else ()
    return {subset: folder / f"{subset}.txt" for subset in names}


def skip(stage: str) -> None:
    """Say that a stage is complete."""
    logger.info("%s: already there", stage)
