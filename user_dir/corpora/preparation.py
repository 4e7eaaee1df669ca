"""The stages from raw files to binarised data; each is skipped if its output is complete."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from ..errors import UserError
from ..io import leads_out, locked, within
from . import cleaning, normalising, parallel_text, stamps
from .archives import split_name
from .binarise import copy_dictionary, preprocess, preprocess_text, write_dictionary
from .corpus import Corpus
from .description import MAX_INTEGER
from .origins import origin_of
from .readers import read_made_lines
from .segment import segment, vocabulary
from .split_sources import file_names
from .text_stages import make_normalised, make_text, write_pairs
from .vocabulary import make_model, other_corpus, pretraining_text, skip
from .worker_pool import WORKERS, available_cores, batches

logger = logging.getLogger(__name__)


def prepare(
    corpus: Corpus,
    raw: Path | None = None,
    vocabulary_size: int | None = None,
    workers: int | None = None,
    force: bool = False,
) -> None:
    """Prepare a corpus from raw files to binarised data; only missing or outdated stages run.

    ``raw``: a folder with the raw files. ``vocabulary_size`` overrides that of ``corpus.yaml``. ``force``
    runs all stages again, starting from the raw files. Raises UserError for mistakes of the user.
    """
    origin = origin_of(corpus)
    normalising.check(corpus.description)
    cleaning.limits_of(corpus.description, pieces=True)
    if raw is not None and not raw.is_dir():
        raise UserError(f"--raw {raw} is not a folder; pass the folder of the raw files of {corpus.name}")
    for flag, number, most in (("vocab-size", vocabulary_size, MAX_INTEGER), ("workers", workers, WORKERS)):
        if number is not None and number < 1:
            raise UserError(f"--{flag} {number} must be positive")
        if number is not None and number > most:
            raise UserError(f"--{flag} must be at most {most}")
    workers = workers or available_cores()
    for folder in corpus.written:
        within(corpus.folder, folder)
    _check_raw(corpus, raw)
    with locked(corpus.folder, "preparing"):
        make_text(corpus, origin, raw, workers, force)
        make_normalised(corpus, workers, force)
        make_model(corpus, vocabulary_size, force)
        make_pieces(corpus, workers, force)
        make_bin(corpus, workers, force)
        make_pretraining(corpus, workers, force)


def _check_raw(corpus: Corpus, raw: Path | None) -> None:
    """Raise UserError if raw files lie where preparing would replace them: often there is no other copy."""
    place = raw or corpus.raw
    # Files as well, because their names may have folders, and they may be links.
    names = map(split_name, file_names(corpus.description))
    paths = (parallel_text.find(corpus, name, place) for name, _ in names)
    for path in [place, *filter(None, paths)]:
        for folder in corpus.written:
            if leads_out(folder, path) is None:
                given = f"--raw {raw}" if path == raw else f"the raw file {path}"
                raise UserError(
                    f"{given} is in {folder}, whose files preparing replaces; copy the raw files elsewhere, "
                    f"such as to {corpus.raw}, and give that folder"
                )


def make_pieces(corpus: Corpus, workers: int, force: bool) -> None:
    """Segment the text to ``text/spm/SUBSET.LANGUAGE``, pieces separated by spaces.

    Drops training pairs that fail the filter on pieces or became empty by normalisation.
    """
    stamp = corpus.segmented / "stamp.json"
    limits = cleaning.limits_of(corpus.description, pieces=True)
    inputs = {"spm": stamps.fingerprint(corpus.folder / "spm.json"), "clean": [vars(each) for each in limits]}
    if stamps.is_whole(stamp, inputs) and not force:
        return skip("segmented text")
    with stamps.building(stamp, inputs, corpus.folder) as build:
        for split, subset in corpus.subsets.items():
            sides = (
                segment(
                    _lines(corpus.normalised(subset, language)),
                    corpus.pieces,
                    workers,
                    separated=corpus.description.triplets,
                    where=f"{corpus.name}: {split} ({language})",
                )
                for language in corpus.languages
            )
            pairs = tqdm(zip(*sides), desc=f"pieces {split}", unit=" pairs", unit_scale=True, disable=None)
            dropped: Counter = Counter()
            kept = _cleaned(corpus, pairs, limits, dropped) if subset == "train" else pairs
            count = write_pairs(corpus, kept, build.folder, subset)
            build.report[subset] = {"pairs": count, "dropped": dict(dropped)}
        for subset, path in pretraining_text(corpus).items():
            lines = segment(_lines(path), corpus.pieces, workers, separated=True, where=str(path))
            with (build.folder / f"{subset}.pretraining").open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(line + "\n" for line in lines if line)
        if not build.report["train"]["pairs"]:
            raise UserError(
                f"no pair of {corpus.name} passes the filter on pieces; check clean in corpus.yaml"
            )
    return None


def _cleaned(corpus: Corpus, pairs: Iterable, limits: tuple, dropped: Counter) -> Iterator:
    for batch in batches(pairs):
        kept, reasons = cleaning.clean(batch, corpus.languages, limits)
        dropped.update(reasons)
        yield from kept


def make_bin(corpus: Corpus, workers: int, force: bool) -> None:
    """Binarise ``text/spm/*`` to ``bin/``, with a joined dictionary."""
    stamp = corpus.bin / "stamp.json"
    inputs = {"pieces": stamps.fingerprint(corpus.segmented / "stamp.json")}
    other = other_corpus(corpus)
    if other is not None:
        inputs["dictionary_of"] = stamps.fingerprint(other.bin / "stamp.json")
    if stamps.is_whole(stamp, inputs) and not force:
        return skip("binarised data")
    logger.info("fairseq-preprocess: binarising %s", ", ".join(corpus.subsets))
    with stamps.building(stamp, inputs, corpus.folder) as build:
        training = [corpus.segmented / f"train.{language}" for language in corpus.languages]
        dictionary = build.folder / "dict.txt"
        if other is None:
            size = write_dictionary(vocabulary(corpus.pieces), _lines(*training), dictionary)
        else:
            size = copy_dictionary(other.bin / f"dict.{other.languages[0]}.txt", dictionary)
        subsets = list(corpus.subsets.values())
        sides = preprocess(corpus.languages, subsets, corpus.segmented, dictionary, build.folder, workers)
        dictionary.unlink()  # fairseq has copied it for each language
        build.report = {"dictionary": size, "sides": sides}
    return None


def make_pretraining(corpus: Corpus, workers: int, force: bool) -> None:
    """Binarise the text for masked language modelling to ``pretraining/``, with the same dictionary."""
    if not corpus.description.pretraining:
        return None
    stamp = corpus.pretraining / "stamp.json"
    inputs = {"pieces": stamps.fingerprint(corpus.segmented / "stamp.json")}
    if stamps.is_whole(stamp, inputs) and not force:
        return skip("binarised pretraining text")
    logger.info("fairseq-preprocess: binarising the pretraining text")
    with stamps.building(stamp, inputs, corpus.folder) as build:
        dictionary = corpus.bin / f"dict.{corpus.languages[0]}.txt"
        build.report = {"sides": preprocess_text(corpus.segmented, dictionary, build.folder, workers)}
    return None


def _lines(*paths: Path) -> Iterator[str]:
    for path in paths:
        yield from read_made_lines(path)
