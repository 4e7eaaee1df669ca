"""The stages from raw files to binarised data; each is skipped if its output is complete."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from ..errors import UserError
from ..io import leads_out, locked, within
from . import cleaning, raw_text, stamps
from .binarise import copy_dictionary, preprocess, preprocess_text, write_dictionary
from .corpus import Corpus
from .description import MAX_INTEGER
from .lost_case import case_of
from .raw_files import RawFiles
from .readers import read_made_lines
from .segment import segment, vocabulary
from .text_stages import make_normalised, make_text
from .unknown_pieces import require_known
from .vocabulary import make_model, other_corpus, pretraining_text
from .worker_pool import WORKERS, available_cores
from .writing import progress, write_rows

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
    raw_text.check(corpus.description)
    files = RawFiles(corpus, raw)
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
    _require_elsewhere(files)
    with locked(corpus.folder, "preparing"):
        make_text(corpus, files, workers, force)
        make_normalised(corpus, workers, force)
        make_model(corpus, vocabulary_size, force)
        for split in corpus.subsets:
            case_of(corpus, split)  # refuses to restore what is not lost
        make_pieces(corpus, workers, force)
        make_bin(corpus, workers, force)
        make_pretraining(corpus, workers, force)


def _require_elsewhere(files: RawFiles) -> None:
    """Raise UserError if raw files lie where preparing would replace them: often there is no other copy."""
    # Files as well, because their names may have folders, and they may be links.
    for path in [files.folder, *filter(None, files.found())]:
        for folder in files.corpus.written:
            if leads_out(folder, path) is None:
                given = f"--raw {path}" if path == files.given else f"the raw file {path}"
                raise UserError(
                    f"{given} is in {folder}, whose files preparing replaces; copy the raw files elsewhere, "
                    f"such as to {files.corpus.raw}, and give that folder"
                )


def make_pieces(corpus: Corpus, workers: int, force: bool) -> None:
    """Segment the text to ``text/spm/SUBSET.LANGUAGE``, pieces separated by spaces.

    Drops training pairs that fail the filter on pieces or became empty by normalisation.
    """
    stamp = corpus.segmented / "stamp.json"
    limits = cleaning.limits_of(corpus.description, pieces=True)
    inputs = {"spm": stamps.fingerprint(corpus.folder / "spm.json"), "clean": [vars(each) for each in limits]}
    if stamps.is_done("segmented text", stamp, inputs, force):
        return

    def pieces(path: Path, separated: bool, where: str) -> Iterator[str]:
        return segment(read_made_lines(path), corpus.pieces, workers, separated, where)

    with stamps.building(stamp, inputs, corpus.folder) as build:
        for split, subset in corpus.subsets.items():
            sides = (
                pieces(
                    corpus.normalised(subset, language),
                    corpus.description.triplets,
                    f"{corpus.name}: {split} ({language})",
                )
                for language in corpus.languages
            )
            pairs, dropped = progress(zip(*sides), f"pieces {split}"), Counter()
            if subset == "train":
                pairs = cleaning.cleaned(pairs, corpus.languages, limits, dropped, workers=1)
            count = write_rows(build.folder, subset, corpus.languages, pairs)[subset]
            build.report[subset] = {"pairs": count, "dropped": dict(dropped)}
        for path in pretraining_text(corpus):
            rows = ((line,) for line in pieces(path, True, str(path)) if line)
            write_rows(build.folder, path.stem, ["pretraining"], rows)
        if not build.report["train"]["pairs"]:
            raise UserError(
                f"no pair of {corpus.name} passes the filter on pieces; check clean in corpus.yaml"
            )


def make_bin(corpus: Corpus, workers: int, force: bool) -> None:
    """Binarise ``text/spm/*`` to ``bin/``, with a joined dictionary."""
    stamp, other = corpus.bin / "stamp.json", other_corpus(corpus)
    inputs = {"pieces": stamps.fingerprint(corpus.segmented / "stamp.json")}
    if other is not None:
        inputs["dictionary_of"] = stamps.fingerprint(other.bin / "stamp.json")
    if stamps.is_done("binarised data", stamp, inputs, force):
        return
    logger.info("fairseq-preprocess: binarising %s", ", ".join(corpus.subsets))
    with stamps.building(stamp, inputs, corpus.folder) as build:
        dictionary = build.folder / "dict.txt"
        if other is None:
            training = (read_made_lines(corpus.segmented / f"train.{each}") for each in corpus.languages)
            size = write_dictionary(vocabulary(corpus.pieces), chain.from_iterable(training), dictionary)
        else:
            size = copy_dictionary(other.bin / f"dict.{other.languages[0]}.txt", dictionary)
        subsets = list(corpus.subsets.values())
        parts = corpus.description.parts
        sides = preprocess(parts, subsets, corpus.segmented, dictionary, build.folder, workers)
        require_known(corpus, sides)
        dictionary.unlink()  # fairseq has copied it for each language
        build.report = {"dictionary": size, "sides": sides}


def make_pretraining(corpus: Corpus, workers: int, force: bool) -> None:
    """Binarise the text for masked language modelling to ``pretraining/``, with the same dictionary."""
    if not corpus.description.pretraining:
        return
    stamp = corpus.pretraining / "stamp.json"
    inputs = {"pieces": stamps.fingerprint(corpus.segmented / "stamp.json")}
    if stamps.is_done("binarised pretraining text", stamp, inputs, force):
        return
    logger.info("fairseq-preprocess: binarising the pretraining text")
    with stamps.building(stamp, inputs, corpus.folder) as build:
        dictionary = corpus.bin / f"dict.{corpus.languages[0]}.txt"
        build.report = {"sides": preprocess_text(corpus.segmented, dictionary, build.folder, workers)}
