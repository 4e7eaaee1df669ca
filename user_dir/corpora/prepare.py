"""The stages from a corpus's raw files to its binarised data, each skipped when its output is whole."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..errors import UserError
from . import plain_text, stamps, toy_grammar
from .binarise import preprocess, write_dictionary
from .corpus import Corpus
from .lock import locked
from .segment import segment, train_model, vocabulary

logger = logging.getLogger(__name__)

# A family is a module with four functions:
# check(corpus) refuses splits and options that it cannot read;
# inputs(corpus, raw) says, as JSON, what the text is made from, and fetches what is missing;
# available(corpus) says whether there is nothing to fetch;
# pairs(corpus, split, raw) yields the sentences, (source, target).
FAMILIES = {"plain_text": plain_text, "toy_grammar": toy_grammar}
FORMAT = 1  # raised when a stage comes to write something else for the same inputs


def prepare(
    corpus: Corpus,
    raw: Path | None = None,
    vocabulary_size: int | None = None,
    workers: int | None = None,
    force: bool = False,
) -> None:
    """Bring a corpus from raw files to binarised data; only what is missing or outdated is done.

    ``raw``: a folder that has the raw files already. ``vocabulary_size`` replaces that of ``corpus.yaml``.
    ``force`` redoes every stage from the raw files on. Mistakes of the user raise a ``UserError``.
    """
    family = FAMILIES.get(corpus.description.family)
    if family is None:
        raise UserError(
            f"{corpus.description.path}: there is no family {corpus.description.family!r}; "
            f"the known ones are {', '.join(FAMILIES)}"
        )
    family.check(corpus)
    if raw is not None and not raw.is_dir():
        raise UserError(
            f"--raw {raw} is not a folder; give the one that holds the raw files of {corpus.name}"
        )
    if vocabulary_size is not None and vocabulary_size < 1:
        raise UserError(f"--vocab-size {vocabulary_size} is not a positive number")
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers} is not a positive number")
    workers = workers or available_cores()
    with locked(corpus.folder):
        make_text(corpus, family, raw, force)
        make_model(corpus, vocabulary_size, force)
        make_pieces(corpus, workers, force)
        make_bin(corpus, workers, force)


def make_text(corpus: Corpus, family: Any, raw: Path | None, force: bool) -> None:
    """Raw files → ``text/SUBSET.LANGUAGE``, without training pairs of which a side is empty."""
    stamp = corpus.folder / "text" / "stamp.json"
    settings = {
        "format": FORMAT,
        "family": corpus.description.family,
        "languages": corpus.languages,
        "splits": corpus.description.splits,
        "options": corpus.description.options,
    }
    # Text made from files that are no longer here, or were in another --raw, needs no new download.
    if raw is None and not force and not family.available(corpus):
        made_from = stamps.read_stamp(stamp).get("inputs", {}).get("raw")
        if stamps.is_whole(stamp, {**settings, "raw": made_from}):
            return _skip("text")
    inputs = {**settings, "raw": family.inputs(corpus, raw)}
    if stamps.is_whole(stamp, inputs) and not force:
        return _skip("text")
    with stamps.building(stamp, inputs) as build:
        build.report = {
            subset: _write_pairs(corpus, family.pairs(corpus, split, raw), build.folder, split, subset)
            for split, subset in corpus.subsets.items()
        }
    return None


def _write_pairs(
    corpus: Corpus, pairs: Iterator[tuple[str, str]], folder: Path, split: str, subset: str
) -> dict:
    """Write one subset; returns its numbers of pairs kept and dropped."""
    source, target = (folder / f"{subset}.{language}" for language in corpus.languages)
    kept = dropped = 0
    with (
        source.open("w", encoding="utf-8", newline="\n") as left,
        target.open("w", encoding="utf-8", newline="\n") as right,
    ):
        for pair in tqdm(pairs, desc=f"text {split}", unit=" pairs", unit_scale=True, disable=None):
            # Scoring counts on every line of the other subsets.
            if subset == "train" and not all(side.strip() for side in pair):
                dropped += 1
                continue
            left.write(pair[0] + "\n")
            right.write(pair[1] + "\n")
            kept += 1
    if not kept:
        raise UserError(
            f"the split {split} of {corpus.name} has no sentence pair; look at its raw files, then run again"
        )
    return {"pairs": kept, "dropped": dropped}


def make_model(corpus: Corpus, vocabulary_size: int | None, force: bool) -> None:
    """``text/train.*`` → ``spm.model`` and ``spm.vocab``.

    Without ``vocabulary_size``, one given in an earlier run stays: checkpoints need the pieces they know.
    """
    stamp = corpus.folder / "spm.json"
    last = stamps.read_stamp(stamp)
    chosen = vocabulary_size or last.get("report", {}).get("chosen_size")
    if chosen and not vocabulary_size:
        logger.info("sentencepiece: staying with the %s pieces chosen earlier by --vocab-size", f"{chosen:,}")
    settings = {
        "vocabulary_size": chosen or corpus.description.vocabulary_size,
        "character_coverage": corpus.description.character_coverage,
        "normalization": corpus.description.normalization,
    }
    inputs = {"text": stamps.fingerprint(corpus.folder / "text" / "stamp.json"), **settings}
    if stamps.is_whole(stamp, inputs) and not force:
        return _skip("sentencepiece model")
    if last and last["inputs"] != inputs:
        logger.warning("warning: the vocabulary changes; checkpoints trained with the last one no longer fit")
    logger.info(
        "sentencepiece: learning %s pieces from the training text", f"{settings['vocabulary_size']:,}"
    )
    with stamps.building(stamp, inputs) as build:
        build.report = {"chosen_size": chosen}
        sentences = _lines(*(corpus.text("train", each) for each in corpus.languages))
        train_model(sentences, build.folder / "spm.model", **settings)
    return None


def make_pieces(corpus: Corpus, workers: int, force: bool) -> None:
    """``text/SUBSET.LANGUAGE`` → ``text/spm/SUBSET.LANGUAGE``, the pieces parted by spaces."""
    stamp = corpus.segmented / "stamp.json"
    inputs = {"spm": stamps.fingerprint(corpus.folder / "spm.json")}
    if stamps.is_whole(stamp, inputs) and not force:
        return _skip("segmented text")
    with stamps.building(stamp, inputs) as build:
        for subset in corpus.subsets.values():
            for language in corpus.languages:
                text = corpus.text(subset, language)
                pieces = segment(_lines(text), corpus.spm_model, workers, f"pieces {text.name}")
                with (build.folder / text.name).open("w", encoding="utf-8", newline="\n") as file:
                    file.writelines(line + "\n" for line in pieces)
    return None


def make_bin(corpus: Corpus, workers: int, force: bool) -> None:
    """``text/spm/*`` → ``bin/``, fairseq's data and joined dictionary."""
    stamp = corpus.bin / "stamp.json"
    inputs = {"pieces": stamps.fingerprint(corpus.segmented / "stamp.json")}
    if stamps.is_whole(stamp, inputs) and not force:
        return _skip("binarised data")
    logger.info("fairseq-preprocess: binarising %s", ", ".join(corpus.subsets))
    with stamps.building(stamp, inputs) as build:
        training = [corpus.segmented / f"train.{language}" for language in corpus.languages]
        dictionary = build.folder / "dict.txt"
        size = write_dictionary(vocabulary(corpus.spm_model), _lines(*training), dictionary)
        subsets = list(corpus.subsets.values())
        preprocess(corpus.languages, subsets, corpus.segmented, dictionary, build.folder, workers)
        dictionary.unlink()  # fairseq wrote it again, for each language
        build.report = {"dictionary": size}
    return None


def available_cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _lines(*paths: Path) -> Iterator[str]:
    for path in paths:
        yield from plain_text.read_lines(path)


def _skip(stage: str) -> None:
    logger.info("%s: already there", stage)
