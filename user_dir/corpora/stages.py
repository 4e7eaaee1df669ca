"""The stages from raw files to binarised data: text → pieces → binarised.

A stage is skipped if its stamp says that its inputs are the same, and its output replaces that of before only
when it is complete.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..errors import UserError
from ..files import locked
from . import cleaning, pieces, stamps
from .corpus import Corpus, load_corpus, read_dictionary
from .download import RawFiles
from .readers import Pairs, Source, read_lines, read_pairs
from .readers.triplets import BETWEEN, read_joined
from .wordpiece import read_tokenizer

logger = logging.getLogger(__name__)

LEARN_FROM = 1_000_000  # sentences; of more, pieces are learned from a random sample
PRETRAINING_HELD_OUT = 100  # of so many lines, one is for validation


def prepare(
    corpus: Corpus,
    raw: Path | None = None,
    vocabulary_size: int | None = None,
    workers: int | None = None,
    force: bool = False,
) -> None:
    """Prepare a corpus from raw files to binarised data; only missing or outdated stages run.

    ``raw``: a folder with the raw files; without it, they are in ``corpus.raw`` or downloaded. ``workers``:
    threads that segment text. ``force`` runs all stages again. Raises UserError for mistakes of the user.
    """
    if raw is not None and not raw.is_dir():
        raise UserError(f"--raw {raw} is not a folder")
    workers = workers or len(os.sched_getaffinity(0))
    with locked(corpus.folder, "preparing"):
        make_text(corpus, RawFiles(corpus, raw), force)
        make_model(corpus, vocabulary_size, force)
        make_pieces(corpus, workers, force)
        make_bin(corpus, force)


# ------------------------------------------------------------------------------ text


def make_text(corpus: Corpus, files: RawFiles, force: bool) -> None:
    """Write raw files to ``text/SUBSET.LANGUAGE``, as released except for dropped training pairs.

    Also to ``normalised``, ``reference``, ``mt`` and ``pretraining`` in ``text``, if the corpus has them.
    """
    stamp, description = corpus.folder / "text" / "stamp.json", corpus.description
    keys = ("origin", "languages", "splits", "normalise", "wordpiece", "pretraining")
    inputs: dict[str, Any] = {key: getattr(description, key) for key in keys}
    inputs["clean"] = [repr(description.clean.moses_tokens), description.clean.near_duplicates]
    # Text whose raw files are no longer here needs no download.
    if files.given is None and not force and None in map(files.find, files.members):
        made_from = stamps.read_stamp(stamp).get("inputs", {}).get("raw")
        if stamps.is_done("text", stamp, {**inputs, "raw": made_from}):
            return
    inputs["raw"] = files.digests()
    if stamps.is_done("text", stamp, inputs, force):
        return
    with stamps.building(stamp, inputs) as build:
        files.extract(build.folder / "members")
        for split in (*corpus.test_sets, "valid", "train"):
            _write_split(files, split, build)
        for subset in corpus.subsets.values() if description.triplets else ():
            lines = read_lines(build.folder / f"{subset}.{corpus.languages[0]}")
            translations = ((line.partition(BETWEEN)[2],) for line in lines)
            write_rows(build.folder / "mt", subset, corpus.languages[1:], translations)
        if description.wordpiece:
            paths = {kind: files.path_of(name) for kind, name in files.tokenizer.items()}
            read_tokenizer(paths).write(build.folder)
        for name in ("train", "valid") if description.pretraining else ():
            lines = _divided(_pretraining_lines(files), {"valid": PRETRAINING_HELD_OUT}, name)
            rows, folder = ((line,) for line in lines), build.folder / "pretraining"
            build.report.setdefault("pretraining", {})[name] = write_rows(folder, name, ["txt"], rows)
        shutil.rmtree(build.folder / "members", ignore_errors=True)


def _write_split(files: RawFiles, split: str, build: stamps.Build) -> None:
    """Write a split, ``train`` cleaned and after all others, which it must not contain.

    If others than its own pairs are to be scored against, they are written to ``reference``, and if it has
    steps of normalisation, the text after them to ``normalised``.
    """
    corpus, description = files.corpus, files.corpus.description
    subset, dropped = corpus.subset(split), Counter()
    of_training_text = split == "train" or split in description.held_out
    sources = description.sources("train" if of_training_text else split)
    pairs = chain.from_iterable(_read(files, source, source.file) for source in sources)
    if of_training_text:
        pairs = _cleaned(pairs, corpus, "moses_tokens", dropped)
        pairs = _divided(pairs, description.held_out, split)
    if split == "train" and description.clean.near_duplicates:
        texts = ([build.folder / f"{name}.{each}" for each in corpus.languages] for name in build.report)
        others = chain.from_iterable(zip(*map(read_lines, paths)) for paths in texts)
        pairs = cleaning.unlike(pairs, others, dropped)
    count = write_rows(build.folder, subset, corpus.languages, pairs)
    if not count:
        raise UserError(f"the split {split} of {corpus.name} has no sentence pair")
    build.report[subset] = {"pairs": count, "dropped": dropped if split == "train" else {}}
    if any(source.reference for source in sources):
        pairs = chain.from_iterable(_read(files, each, each.reference or each.file) for each in sources)
        number = write_rows(build.folder / "reference", subset, corpus.languages, pairs)
        if number != count:
            raise UserError(
                f"the split {split} of {corpus.name} has {count:,} pairs, but {number:,} references"
            )
    steps = description.steps(split)
    for language in corpus.languages if steps else ():
        lines = read_lines(build.folder / f"{subset}.{language}")
        rows = (cleaning.normalise([line], language, steps) for line in lines)
        write_rows(build.folder / "normalised", subset, [language], rows)


def _read(files: RawFiles, source: Source, names: dict[str, str]) -> Pairs:
    description = files.corpus.description
    paths = [files.path_of(names[side]) for side in description.sides]
    return read_pairs(paths, description.languages, source)


def _cleaned(pairs: Iterable, corpus: Corpus, unit: str, dropped: Counter) -> Pairs:
    """The pairs that pass the limits in a unit; ``dropped`` is increased by the others, by reason."""
    limit = getattr(corpus.description.clean, unit)
    for pair in pairs:
        reason = cleaning.complaint(pair, corpus.languages, unit, limit)
        if reason is None:
            yield pair
        else:
            dropped[reason] += 1


def _divided(items: Iterable, held_out: dict[str, int], split: str) -> Iterator:
    """The items of a split: one in N for each that is held out, and all the others for ``train``."""
    for number, item in enumerate(items, start=1):
        places = enumerate(held_out.items())
        owner = next((name for place, (name, every) in places if number % every == place), "train")
        if owner == split:
            yield item


def _pretraining_lines(files: RawFiles) -> Iterator[str]:
    for entry in files.corpus.description.pretraining:
        names = [entry] if isinstance(entry, str) else [entry["src"], entry["mt"]]
        yield from read_joined(*map(files.path_of, names))


def write_rows(folder: Path, subset: str, endings: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Write rows, such as pairs, to a file ``SUBSET.ENDING`` for each of their lines; returns how many."""
    folder.mkdir(exist_ok=True)
    count = 0
    with ExitStack() as stack:
        paths = [folder / f"{subset}.{ending}" for ending in endings]
        files = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
        for row in tqdm(rows, subset, unit_scale=True, disable=None):
            count += 1
            for file, line in zip(files, row):
                file.write(line + "\n")
    return count


# ------------------------------------------------------------------------------ pieces


def make_model(corpus: Corpus, vocabulary_size: int | None, force: bool) -> None:
    """Train ``spm.model`` and ``spm.vocab``, or copy those of another corpus; nothing for that of a BERT.

    Without ``vocabulary_size``, the size given in an earlier run is kept, because checkpoints depend on it.
    """
    description, stamp, other = corpus.description, corpus.folder / "spm.json", other_corpus(corpus)
    if vocabulary_size is not None and (other or description.wordpiece):
        raise UserError(f"--vocab-size {vocabulary_size}: {corpus.name} has pieces that are not learned")
    inputs = {"text": stamps.fingerprint(corpus.folder / "text" / "stamp.json")}
    chosen = vocabulary_size or stamps.read_stamp(stamp).get("report", {}).get("chosen_size")
    if other:
        inputs["pieces_of"] = stamps.fingerprint(other.require_prepared().folder / "spm.json")
    elif not description.wordpiece:
        keys = ("vocabulary_size", "character_coverage", "normalization", "split_digits")
        inputs |= {key: getattr(description, key) for key in keys}
        inputs["vocabulary_size"] = chosen or description.vocabulary_size
    if stamps.is_done("pieces", stamp, inputs, force):
        return
    with stamps.building(stamp, inputs) as build:
        model = build.folder / corpus.spm_model.name
        if other:
            shutil.copyfile(other.spm_model, model)
            shutil.copyfile(other.spm_model.with_suffix(".vocab"), model.with_suffix(".vocab"))
        elif not description.wordpiece:
            build.report["chosen_size"] = chosen
            _learn(corpus, model, inputs)
        # An interruption from here must not leave the new pieces beside text in the old ones.
        for folder in (corpus.segmented, corpus.bin, corpus.pretraining):
            (folder / "stamp.json").unlink(missing_ok=True)


def _learn(corpus: Corpus, model: Path, settings: dict[str, Any]) -> None:
    """Learn pieces from the training text; a size that nobody gave follows from the number of pairs."""
    paths = [corpus.normalised("train", language) for language in corpus.languages]
    paths += corpus.pretraining_text()[:1]

    def sentences() -> Iterator[str]:
        return filter(str.strip, chain.from_iterable(map(read_lines, paths)))

    count, size = sum(1 for _ in sentences()), settings["vocabulary_size"]
    options = {key: settings[key] for key in ("character_coverage", "normalization", "split_digits")}
    if corpus.description.triplets or corpus.description.pretraining:
        options["symbols"] = pieces.SYMBOLS
    if size is None:
        text = stamps.read_stamp(corpus.folder / "text" / "stamp.json")
        size = pieces.suitable_size(text["report"]["train"]["pairs"])
        options["hard_vocab_limit"] = False  # a small text has fewer
    logger.info("sentencepiece: learning %s pieces from the training text", f"{size:,}")
    pieces.train_model(pieces.sample(sentences(), count, LEARN_FROM), model, size, **options)


def other_corpus(corpus: Corpus) -> Corpus | None:
    """The corpus beside this one whose pieces and dictionary are used, if any."""
    name = corpus.description.pieces_of
    return None if name is None else load_corpus(name, corpus.folder.parent)


def make_pieces(corpus: Corpus, workers: int, force: bool) -> None:
    """Segment the text to ``text/spm/SUBSET.LANGUAGE``, pieces separated by spaces.

    Drops training pairs that fail the filter on pieces or became empty by normalisation.
    """
    stamp, triplets = corpus.segmented / "stamp.json", corpus.description.triplets
    inputs = {"spm": stamps.fingerprint(corpus.folder / "spm.json")}
    inputs["clean"] = repr(corpus.description.clean.pieces)
    if stamps.is_done("segmented text", stamp, inputs, force):
        return
    with stamps.building(stamp, inputs) as build:
        for subset in corpus.subsets.values():
            texts = [read_lines(corpus.normalised(subset, language)) for language in corpus.languages]
            pairs = zip(*(pieces.segment(text, corpus.pieces, workers, triplets) for text in texts))
            dropped: Counter = Counter()
            if subset == "train":
                pairs = _cleaned(pairs, corpus, "pieces", dropped)
            count = write_rows(build.folder, subset, corpus.languages, pairs)
            build.report[subset] = {"pairs": count, "dropped": dropped}
        for path in corpus.pretraining_text():
            lines = pieces.segment(read_lines(path), corpus.pieces, workers, separated=True)
            write_rows(build.folder, path.stem, ["pretraining"], ((line,) for line in lines if line))
        if not build.report["train"]["pairs"]:
            raise UserError(f"no pair of {corpus.name} passes the filter on pieces in corpus.yaml")


# ------------------------------------------------------------------------------ binarised


def make_bin(corpus: Corpus, force: bool) -> None:
    """Binarise ``text/spm/*`` to ``bin/`` with a joined dictionary, and the text for pretraining."""
    other, stamp, languages = other_corpus(corpus), corpus.bin / "stamp.json", corpus.languages
    inputs = {"pieces": stamps.fingerprint(corpus.segmented / "stamp.json")}
    if other is not None:
        inputs["dictionary_of"] = stamps.fingerprint(other.bin / "stamp.json")
    if not stamps.is_done("binarised data", stamp, inputs, force):
        logger.info("binarising %s", ", ".join(corpus.subsets))
        with stamps.building(stamp, inputs) as build:
            path = build.folder / "dict.txt"  # a language model of the same dictionary looks for this one
            if other is None:
                training = (read_lines(corpus.segmented / f"train.{language}") for language in languages)
                symbols = pieces.vocabulary(corpus.pieces)
                pieces.write_dictionary(symbols, chain.from_iterable(training), path)
            else:
                shutil.copyfile(other.bin / "dict.txt", path)
            for language in languages:
                shutil.copyfile(path, build.folder / f"dict.{language}.txt")
            build.report = {"dictionary": len(read_dictionary(build.folder)), "sides": {}}
            for subset in corpus.subsets.values():
                build.report["sides"][subset] = {}
                for language in languages:
                    text = corpus.segmented / f"{subset}.{language}"
                    prefix = build.folder / f"{subset}.{'-'.join(languages)}.{language}"
                    build.report["sides"][subset][language] = binarise(text, prefix)
    stamp = corpus.pretraining / "stamp.json"
    if corpus.description.pretraining and not stamps.is_done("pretraining text", stamp, inputs, force):
        with stamps.building(stamp, inputs) as build:
            shutil.copyfile(corpus.bin / "dict.txt", build.folder / "dict.txt")
            for subset in ("train", "valid"):
                binarise(corpus.segmented / f"{subset}.pretraining", build.folder / subset)


def binarise(text: Path, prefix: Path) -> dict[str, int]:
    """Write pieces, a sentence per line, as ``prefix.bin`` and ``prefix.idx`` by the ``dict.txt`` beside.

    As ``fairseq-preprocess`` does, but in this process, so that nothing is left running when it is killed.

    Returns the number of ``pieces``, and of those that are ``unknown``.
    """
    import torch
    from fairseq.data import indexed_dataset

    symbols, counts = read_dictionary(prefix.parent), Counter(pieces=0, unknown=0)
    data_type = indexed_dataset.best_fitting_int_dtype(len(symbols))
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{prefix}.bin", data_type)
    for line in read_lines(text):
        numbers = [symbols.index(piece) for piece in line.split()]
        builder.add_item(torch.tensor([*numbers, symbols.eos()], dtype=torch.int32))
        counts["pieces"] += len(numbers)
        counts["unknown"] += numbers.count(symbols.unk())
    builder.finalize(f"{prefix}.idx")
    return counts
