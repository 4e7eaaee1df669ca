"""The stages from raw files to text: reading, cleaning, normalising."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import UserError
from . import cleaning, normalising, raw_text, stamps
from .bert_tokenizer import TOKENIZER, VOCABULARY
from .corpus import Corpus
from .near_duplicates import NEAR_DUPLICATE, drop_near_duplicates
from .raw_files import RawFiles
from .readers import read_made_lines
from .readers.triplets import BETWEEN
from .split_sources import held_out, sources_of
from .worker_pool import map_batches
from .writing import progress, write_rows

TMX = 2  # increased when the reader of TMX finds other text
FORMAT = 2  # increased when a stage's output for the same inputs changes
PRETRAINING_HELD_OUT = 100
"""Every N-th line of the text for masked language modelling is held out for validation."""


def make_text(corpus: Corpus, files: RawFiles, workers: int, force: bool) -> None:
    """Write raw files to ``text/SUBSET.LANGUAGE``, as released except for dropped training pairs."""
    stamp = corpus.folder / "text" / "stamp.json"
    settings = _settings(corpus)
    # Text whose raw files are no longer here, or were in another --raw, needs no download.
    if files.given is None and not force and None in files.found():
        made_from = stamps.read_stamp(stamp).get("inputs", {}).get("raw")
        if stamps.is_done("text", stamp, {**settings, "raw": made_from}):
            return
    inputs = {**settings, "raw": files.digests()}
    if stamps.is_done("text", stamp, inputs, force):
        return
    files.extract(inputs["raw"], force)
    with stamps.building(stamp, inputs, corpus.folder) as build:
        for split, subset in corpus.subsets.items():
            if subset not in build.report:
                build.report |= _write_split(files, split, build.folder, workers)
            _write_references(files, split, build)
        if corpus.description.clean.near_duplicates:
            before, kept = build.report["train"]["pairs"], drop_near_duplicates(corpus, build.folder)
            if kept < before:
                build.report["train"]["pairs"] = kept
                build.report["train"]["dropped"][NEAR_DUPLICATE] = before - kept
        for subset, counts in build.report.items():
            if not counts["pairs"]:
                raise UserError(
                    f"the split {corpus.split(subset)} of {corpus.name} has no sentence pair; "
                    "check its raw files, then run again"
                )
        if corpus.description.triplets:
            _write_uncorrected(corpus, build.folder)
        if corpus.description.wordpiece:
            _write_tokenizer(files, build.folder)
        if corpus.description.pretraining:
            build.report["pretraining"] = _write_pretraining(files, build.folder / "pretraining")


def _settings(corpus: Corpus) -> dict[str, Any]:
    """What of the description determines the text."""
    description = corpus.description
    settings = {
        "format": FORMAT,
        "family": description.origin,  # "family" in stamps, so that prepared corpora stay valid
        "languages": description.languages,
        "splits": description.splits,
        "clean": [vars(each) for each in cleaning.limits_of(description, pieces=False)],
    }
    if description.clean.near_duplicates:
        settings["near_duplicates"] = True
    for key in ("wordpiece", "pretraining"):
        if getattr(description, key):
            settings[key] = getattr(description, key)
    if any(source.form == "tmx" for split in description.splits for source in sources_of(description, split)):
        settings["tmx"] = TMX  # so that other corpora stay valid
    return settings


def _write_split(files: RawFiles, split: str, folder: Path, workers: int) -> dict[str, dict]:
    """Write a split, ``train`` cleaned and with what is held out from it; returns the report by subset."""
    corpus, dropped = files.corpus, Counter()
    pairs = progress(raw_text.pairs(files, split, dropped), f"text {split}")
    every = None
    if split == "train":
        limits, every = cleaning.limits_of(corpus.description, pieces=False), held_out(corpus.description)
        pairs = cleaning.cleaned(pairs, corpus.languages, limits, dropped, workers)
    subset = corpus.subset(split)
    counts = write_rows(folder, subset, corpus.languages, pairs, every)
    return {
        each: {"pairs": count, "dropped": dict(+dropped) if each == subset else {}}
        for each, count in counts.items()
    }


def _write_references(files: RawFiles, split: str, build: stamps.Build) -> None:
    pairs, subset = raw_text.references(files, split), files.corpus.subset(split)
    if pairs is None:
        return
    count = write_rows(build.folder / "reference", subset, files.corpus.languages, pairs)[subset]
    if count != build.report[subset]["pairs"]:
        raise UserError(
            f"the split {split} of {files.corpus.name} has {build.report[subset]['pairs']:,} pairs, "
            f"but {count:,} references; check corpus.yaml and the raw files"
        )


def _write_uncorrected(corpus: Corpus, folder: Path) -> None:
    """The machine translations of triplets, to ``mt/SUBSET.LANGUAGE``."""
    source, target = corpus.languages
    for subset in corpus.subsets.values():
        lines = read_made_lines(folder / f"{subset}.{source}")
        write_rows(folder / "mt", subset, [target], ((line.partition(BETWEEN)[2],) for line in lines))


def _write_tokenizer(files: RawFiles, folder: Path) -> None:
    """Write the tokenizer of a BERT; only its vocabulary if no file says what it does to text."""
    tokenizer = files.read_tokenizer()
    if tokenizer.rules is None:
        (folder / VOCABULARY).write_text(
            "".join(f"{token}\n" for token in tokenizer.tokens), encoding="utf-8"
        )
    else:
        (folder / TOKENIZER).write_text(tokenizer.written(), encoding="utf-8")


def _write_pretraining(files: RawFiles, folder: Path) -> dict[str, Any]:
    """Write ``train.txt`` and ``valid.txt``; returns the numbers of their lines, and of those ``dropped``."""
    dropped: Counter = Counter()
    rows = ((line,) for line in raw_text.pretraining_lines(files, dropped))
    counts = write_rows(folder, "train", ["txt"], rows, PRETRAINING_HELD_OUT)
    if not counts["valid"]:
        raise files.corpus.description.error(
            "pretraining",
            f"pretraining: the files have {counts['train']} lines that are not empty; at least "
            f"{PRETRAINING_HELD_OUT} are needed, because every such line is held out for validation",
        )
    return {**counts, "dropped": dict(dropped)}


def make_normalised(corpus: Corpus, workers: int, force: bool) -> None:
    """Normalise ``text/SUBSET.LANGUAGE`` to ``text/normalised/SUBSET.LANGUAGE`` if the corpus has steps."""
    if not corpus.description.normalise:
        return
    stamp = corpus.folder / "text" / "normalised" / "stamp.json"
    steps = {split: normalising.steps_of(corpus.description, split) for split in corpus.subsets}
    inputs = {"text": stamps.fingerprint(corpus.folder / "text" / "stamp.json"), "steps": steps}
    if stamps.is_done("normalised text", stamp, inputs, force):
        return
    with stamps.building(stamp, inputs, corpus.folder) as build:
        for split, subset in corpus.subsets.items():
            for language in corpus.languages if steps[split] else ():
                text = corpus.text(subset, language)
                function = partial(normalising.normalise, language=language, steps=steps[split])
                lines = progress(read_made_lines(text), f"normalise {text.name}", " lines")
                rows = ((line,) for batch in map_batches(function, lines, workers) for line in batch)
                write_rows(build.folder, subset, [language], rows)


def text_fingerprint(corpus: Corpus) -> str:
    """A hash of the inputs of the text before segmentation."""
    stage = "text/normalised" if corpus.description.normalise else "text"
    return stamps.fingerprint(corpus.folder / stage / "stamp.json")
