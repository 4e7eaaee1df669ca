"""The stages from raw files to text: reading, cleaning, normalising."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tqdm import tqdm

from ..errors import UserError
from . import cleaning, normalising, parallel_text, pretraining, stamps
from .corpus import Corpus
from .near_duplicates import NEAR_DUPLICATE, drop_near_duplicates
from .origins import Origin
from .readers import read_made_lines
from .split_sources import HeldOut, sources_of
from .triplet_text import machine_translation
from .worker_pool import map_batches

logger = logging.getLogger(__name__)

TMX = 2  # increased when the reader of TMX finds other text
FORMAT = 2  # increased when a stage's output for the same inputs changes
Pair = tuple[str, str]


def make_text(corpus: Corpus, origin: Origin, raw: Path | None, workers: int, force: bool) -> None:
    """Write raw files to ``text/SUBSET.LANGUAGE``, as released except for dropped training pairs."""
    stamp = corpus.folder / "text" / "stamp.json"
    limits = cleaning.limits_of(corpus.description, pieces=False)
    settings = {
        "format": FORMAT,
        "family": corpus.description.origin,  # "family" in stamps, so that prepared corpora stay valid
        "languages": corpus.languages,
        "splits": corpus.description.splits,
        "clean": [vars(each) for each in limits],
    }
    near_duplicates = corpus.description.clean.get(cleaning.NEAR_DUPLICATES, False)
    if near_duplicates:
        settings[cleaning.NEAR_DUPLICATES] = True
    if corpus.description.wordpiece:
        settings["wordpiece"] = corpus.description.wordpiece
    if corpus.description.pretraining:
        settings["pretraining"] = corpus.description.pretraining
    sources = (sources_of(corpus.description, split) for split in corpus.description.splits)
    if any(source.form == "tmx" for each in sources if not isinstance(each, HeldOut) for source in each):
        settings["tmx"] = TMX  # so that other corpora stay valid
    # Text whose raw files are no longer here, or were in another --raw, needs no download.
    if raw is None and not force and not origin.available(corpus):
        made_from = stamps.read_stamp(stamp).get("inputs", {}).get("raw")
        if stamps.is_whole(stamp, {**settings, "raw": made_from}):
            return logger.info("text: already there")
    inputs = {**settings, "raw": origin.inputs(corpus, raw)}
    if stamps.is_whole(stamp, inputs) and not force:
        return logger.info("text: already there")
    origin.extract_members(corpus, raw, inputs["raw"], force)
    with stamps.building(stamp, inputs, corpus.folder) as build:
        held_out = origin.held_out(corpus)
        left_out: Counter = Counter()
        pairs = origin.pairs(corpus, "train", raw, left_out)
        build.report = write_training(corpus, pairs, build.folder, limits, held_out, workers)
        _add_left_out(build.report["train"], left_out)
        for split, subset in corpus.subsets.items():
            if subset not in build.report:
                left_out = Counter()
                pairs = _shown(origin.pairs(corpus, split, raw, left_out), f"text {split}")
                count = write_pairs(corpus, pairs, build.folder, subset)
                build.report[subset] = {"pairs": count, "dropped": {}}
                _add_left_out(build.report[subset], left_out)
            _write_references(corpus, origin.references(corpus, split, raw), build, subset)
        if near_duplicates:
            dropped = drop_near_duplicates(corpus, build.folder)
            build.report["train"]["pairs"] -= dropped
            _add_left_out(build.report["train"], Counter({NEAR_DUPLICATE: dropped}))
        if corpus.description.triplets:
            _write_uncorrected(corpus, build.folder)
        for subset, counts in build.report.items():
            if not counts["pairs"]:
                raise UserError(
                    f"the split {corpus.split(subset)} of {corpus.name} has no sentence pair; "
                    "check its raw files, then run again"
                )
        if corpus.description.wordpiece:
            shutil.copyfile(
                parallel_text.path_of(corpus, corpus.description.wordpiece, raw),
                build.folder / corpus.pieces.name,
            )
        if corpus.description.pretraining:
            build.report["pretraining"] = pretraining.write_text(corpus, raw, build.folder / "pretraining")
    return None


def _add_left_out(report: dict, left_out: Counter) -> None:
    """Add to the report of a split what its readers left out."""
    report["dropped"] = dict(Counter(report["dropped"]) + left_out)


def write_training(
    corpus: Corpus,
    pairs: Iterable[Pair],
    folder: Path,
    limits: tuple[cleaning.Limits, ...],
    held_out: int | None,
    workers: int,
) -> dict[str, dict]:
    """Clean and write ``train``, and ``valid`` if it is held out from it; returns the report on both."""
    dropped: Counter = Counter()
    counts = {"train": 0, "valid": 0}
    function = partial(cleaning.clean, languages=corpus.languages, limits=limits)
    with ExitStack() as stack:
        outputs = {
            subset: stack.enter_context(_pair_files(corpus, folder, subset))
            for subset in (("train", "valid") if held_out else ("train",))
        }
        for kept, reasons in map_batches(function, _shown(pairs, "text train"), workers):
            dropped += reasons
            for pair in kept:
                number = counts["train"] + counts["valid"] + 1
                subset = "valid" if held_out and number % held_out == 0 else "train"
                outputs[subset](pair)
                counts[subset] += 1
    report = {"train": {"pairs": counts["train"], "dropped": dict(dropped)}}
    if held_out:
        report["valid"] = {"pairs": counts["valid"], "dropped": {}}
    return report


def write_pairs(corpus: Corpus, pairs: Iterable[Pair], folder: Path, subset: str) -> int:
    """Write the two files of a subset; returns the number of pairs."""
    count = 0
    with _pair_files(corpus, folder, subset) as write:
        for pair in pairs:
            write(pair)
            count += 1
    return count


def _write_references(corpus: Corpus, pairs: Iterable[Pair] | None, build: stamps.Build, subset: str) -> None:
    if pairs is None:
        return
    folder = build.folder / "reference"
    folder.mkdir(exist_ok=True)
    count = write_pairs(corpus, pairs, folder, subset)
    if count != build.report[subset]["pairs"]:
        raise UserError(
            f"the split {corpus.split(subset)} of {corpus.name} has {build.report[subset]['pairs']:,} pairs, "
            f"but {count:,} references; check corpus.yaml and the raw files"
        )


def _write_uncorrected(corpus: Corpus, folder: Path) -> None:
    """The machine translations of triplets, to ``mt/SUBSET.LANGUAGE``."""
    (folder / "mt").mkdir()
    source, target = corpus.languages
    for subset in corpus.subsets.values():
        with (folder / "mt" / f"{subset}.{target}").open("w", encoding="utf-8", newline="\n") as file:
            for line in read_made_lines(folder / f"{subset}.{source}"):
                file.write(machine_translation(line) + "\n")


@contextmanager
def _pair_files(corpus: Corpus, folder: Path, subset: str):
    """Yield a function that writes a pair to the two files of a subset."""
    with ExitStack() as stack:
        left, right = (
            stack.enter_context((folder / f"{subset}.{language}").open("w", encoding="utf-8", newline="\n"))
            for language in corpus.languages
        )

        def write(pair: Pair) -> None:
            left.write(pair[0] + "\n")
            right.write(pair[1] + "\n")

        yield write


def make_normalised(corpus: Corpus, workers: int, force: bool) -> None:
    """Normalise ``text/SUBSET.LANGUAGE`` to ``text/normalised/SUBSET.LANGUAGE`` if the corpus has steps."""
    if not corpus.description.normalise:
        return None
    stamp = corpus.folder / "text" / "normalised" / "stamp.json"
    steps = {split: normalising.steps_of(corpus.description, split) for split in corpus.subsets}
    inputs = {"text": stamps.fingerprint(corpus.folder / "text" / "stamp.json"), "steps": steps}
    if stamps.is_whole(stamp, inputs) and not force:
        return logger.info("normalised text: already there")
    with stamps.building(stamp, inputs, corpus.folder) as build:
        for split, subset in corpus.subsets.items():
            for language in corpus.languages if steps[split] else ():
                text = corpus.text(subset, language)
                function = partial(normalising.normalise, language=language, steps=steps[split])
                lines = _shown(read_made_lines(text), f"normalise {text.name}", " lines")
                with (build.folder / text.name).open("w", encoding="utf-8", newline="\n") as file:
                    for batch in map_batches(function, lines, workers):
                        file.writelines(line + "\n" for line in batch)
    return None


def text_fingerprint(corpus: Corpus) -> str:
    """A hash of the inputs of the text before segmentation."""
    folder = corpus.folder / "text"
    if corpus.description.normalise:
        folder = folder / "normalised"
    return stamps.fingerprint(folder / "stamp.json")


def _shown(items: Iterable, name: str, unit: str = " pairs") -> Iterator:
    yield from tqdm(items, desc=name, unit=unit, unit_scale=True, disable=None)
