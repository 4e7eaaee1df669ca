"""The two stages of preparing a corpus: raw files to text; text to pieces and binarised data.

A stage is skipped if its stamp records the same inputs. New output replaces old output only when complete.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
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

LEARN_FROM = 1_000_000  # sentences; with more, pieces are learned from a random sample of this size
PRETRAINING_HELD_OUT = 100  # one in so many lines is for validation


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
    files = RawFiles(corpus, raw)
    if any(files.folder.resolve().is_relative_to(folder) for folder in corpus.written):
        raise UserError(f"--raw {raw} is a folder whose files preparing replaces; copy them elsewhere")
    workers = workers or len(os.sched_getaffinity(0))
    with locked(corpus.folder, "preparing"):
        make_text(corpus, files, force)
        make_data(corpus, vocabulary_size, workers, force)


def make_text(corpus: Corpus, files: RawFiles, force: bool) -> None:
    """Write raw files to ``text/SUBSET.LANGUAGE``, as released except for dropped training pairs.

    Also to ``normalised``, ``reference``, ``mt`` and ``pretraining`` in ``text``, if the corpus has them.
    """
    stamp, description = corpus.folder / "text" / "stamp.json", corpus.description
    keys = ("origin", "languages", "splits", "normalise", "wordpiece", "pretraining")
    inputs: dict[str, Any] = {key: getattr(description, key) for key in keys}
    inputs["clean"] = [repr(description.clean.moses_tokens), description.clean.near_duplicates]
    # Raw files that are no longer here are not downloaded again if the text made from them is complete.
    if files.user_folder is None and not force and None in map(files.find, files.members):
        made_from = stamps.read_stamp(stamp).get("inputs", {}).get("raw")
        if stamps.is_done("text", stamp, {**inputs, "raw": made_from}):
            return
    inputs["raw"] = files.digests()
    if stamps.is_done("text", stamp, inputs, force):
        return
    with stamps.building(stamp, inputs) as (scratch, report):
        members, folder = scratch / "members", scratch / "text"
        files.extract(members)
        for split in (*corpus.test_sets, "valid", "train"):
            report[corpus.subset(split)] = _write_split(files, split, folder, list(report))
        for subset in corpus.subsets.values() if description.triplets else ():
            lines = read_lines(folder / f"{subset}.{corpus.languages[0]}")
            translations = ((line.partition(BETWEEN)[2],) for line in lines)
            write_rows(folder / "mt", subset, corpus.languages[1:], translations)
        if description.wordpiece:
            paths = {kind: files.path_of(name) for kind, name in files.tokenizer.items()}
            read_tokenizer(paths).write(folder)
        for name in ("train", "valid") if description.pretraining else ():
            lines = _divided(_pretraining_lines(files), {"valid": PRETRAINING_HELD_OUT}, name)
            count = write_rows(folder / "pretraining", name, ["txt"], ((line,) for line in lines))
            report.setdefault("pretraining", {})[name] = count
        shutil.rmtree(members, ignore_errors=True)


def _write_split(files: RawFiles, split: str, folder: Path, others: list[str]) -> dict[str, Any]:
    """Write a split and return its counts; ``train`` and the splits held out of it are cleaned.

    If the description says so, near-duplicates of ``others`` are dropped from ``train``. Separate references
    are written to ``reference``, and text after normalisation steps to ``normalised``.
    """
    corpus, description = files.corpus, files.corpus.description
    subset, dropped, languages = corpus.subset(split), Counter(), corpus.languages
    of_training_text = split == "train" or split in description.held_out
    sources = description.sources("train" if of_training_text else split)
    pairs = chain.from_iterable(_read(files, source, source.file) for source in sources)
    if of_training_text:
        limit = description.clean.moses_tokens
        pairs = cleaning.cleaned(pairs, languages, "moses_tokens", limit, dropped)
        pairs = _divided(pairs, description.held_out, split)
    if split == "train" and description.clean.near_duplicates:
        texts = ([folder / f"{other}.{language}" for language in languages] for other in others)
        held_out = chain.from_iterable(zip(*map(read_lines, paths)) for paths in texts)
        pairs = cleaning.unlike(pairs, held_out, dropped)
    count = write_rows(folder, subset, languages, pairs)
    if not count:
        raise UserError(f"the split {split} of {corpus.name} has no sentence pair")
    if any(source.reference for source in sources):
        pairs = chain.from_iterable(
            _read(files, source, source.reference or source.file) for source in sources
        )
        number = write_rows(folder / "reference", subset, languages, pairs)
        if number != count:
            raise UserError(
                f"the split {split} of {corpus.name} has {count:,} pairs, but {number:,} references"
            )
    steps = description.steps(split)
    for language in languages if steps else ():
        lines = read_lines(folder / f"{subset}.{language}")
        rows = (cleaning.normalise([line], language, steps) for line in lines)
        write_rows(folder / "normalised", subset, [language], rows)
    return {"pairs": count, "dropped": dropped if split == "train" else {}}


def _read(files: RawFiles, source: Source, names: dict[str, str]) -> Pairs:
    description = files.corpus.description
    paths = [files.path_of(names[side]) for side in description.sides]
    return read_pairs(paths, description.languages, source)


def _divided(items: Iterable, held_out: dict[str, int], split: str) -> Iterator:
    """The items of ``split``: one in N if it is held out; all that is not held out if it is ``train``."""
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
    """Write rows, such as pairs, each side to its file ``SUBSET.ENDING``; returns the number of rows."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    with ExitStack() as stack:
        paths = [folder / f"{subset}.{ending}" for ending in endings]
        files = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
        for row in tqdm(rows, subset, unit_scale=True, disable=None):
            count += 1
            for file, line in zip(files, row):
                file.write(line + "\n")
    return count


def make_data(corpus: Corpus, vocabulary_size: int | None, workers: int, force: bool) -> None:
    """Write the pieces of the text to ``text/spm``, their binarised form to ``bin``, and ``spm.model``.

    Without ``vocabulary_size``, the size given in an earlier run is kept, because checkpoints depend on it.
    """
    description, stamp, other = corpus.description, corpus.bin / "stamp.json", other_corpus(corpus)
    learned = other is None and not description.wordpiece
    if vocabulary_size is not None and not learned:
        raise UserError(f"--vocab-size {vocabulary_size}: {corpus.name} has pieces that are not learned")
    inputs = {"text": stamps.fingerprint(corpus.folder / "text" / "stamp.json")}
    inputs["clean"] = repr(description.clean.pieces)
    chosen = vocabulary_size or stamps.read_stamp(stamp).get("report", {}).get("chosen_size")
    if other is not None:
        inputs["pieces_of"] = stamps.fingerprint(other.require_prepared().bin / "stamp.json")
    if learned:
        keys = ("vocabulary_size", "character_coverage", "normalization", "split_digits")
        inputs |= {key: getattr(description, key) for key in keys}
        inputs["vocabulary_size"] = chosen or description.vocabulary_size
    if stamps.is_done("pieces and binarised data", stamp, inputs, force):
        return
    with stamps.building(stamp, inputs) as (scratch, report):
        made, report["chosen_size"] = replace(corpus, folder=scratch), chosen
        if other is not None:
            shutil.copyfile(other.spm_model, made.spm_model)
            shutil.copyfile(other.spm_model.with_suffix(".vocab"), made.spm_model.with_suffix(".vocab"))
        elif learned:
            _learn(corpus, made.spm_model, inputs)
        model = corpus.pieces if description.wordpiece else made.spm_model
        report["pieces"] = _segment(corpus, made.segmented, model, workers)
        logger.info("binarising %s", ", ".join(corpus.subsets))
        made.bin.mkdir()
        dictionary = made.bin / "dict.txt"  # where a language model looks for its dictionary
        if other is None:
            text = (read_lines(made.segmented / f"train.{language}") for language in corpus.languages)
            pieces.write_dictionary(pieces.vocabulary(model), chain.from_iterable(text), dictionary)
        else:
            shutil.copyfile(other.bin / "dict.txt", dictionary)
        report |= _binarise(made, dictionary)
        models = [place.spm_model for place in (corpus, made) if place.spm_model.is_file()]
        if len({model.read_bytes() for model in models}) == 2:
            logger.warning("warning: the pieces change; checkpoints trained with the old ones no longer fit")


def _learn(corpus: Corpus, model: Path, settings: dict[str, Any]) -> None:
    """Learn pieces from the training text; if no size is given, the number of pairs determines it."""
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


def _segment(corpus: Corpus, folder: Path, model: Path, workers: int) -> dict[str, Any]:
    """Write the pieces of each line to ``folder``, separated by spaces; returns the counts of each subset.

    Drops training pairs that fail the filter on pieces or became empty by normalisation.
    """
    counts, triplets = {}, corpus.description.triplets
    for subset in corpus.subsets.values():
        texts = [read_lines(corpus.normalised(subset, language)) for language in corpus.languages]
        pairs = zip(*(pieces.segment(text, model, workers, triplets) for text in texts))
        dropped: Counter = Counter()
        if subset == "train":
            limit = corpus.description.clean.pieces
            pairs = cleaning.cleaned(pairs, corpus.languages, "pieces", limit, dropped)
        count = write_rows(folder, subset, corpus.languages, pairs)
        counts[subset] = {"pairs": count, "dropped": dropped}
    for path in corpus.pretraining_text():
        lines = pieces.segment(read_lines(path), model, workers, separated=True)
        write_rows(folder, path.stem, ["pretraining"], ((line,) for line in lines if line))
    if not counts["train"]["pairs"]:
        raise UserError(f"no pair of {corpus.name} passes the filter on pieces in corpus.yaml")
    return counts


def _binarise(corpus: Corpus, dictionary: Path) -> dict[str, Any]:
    """Binarise ``text/spm``; returns the size of the dictionary, and the counts of each subset and side."""
    sides: dict[str, dict] = {}
    for language in corpus.languages:
        shutil.copyfile(dictionary, corpus.bin / f"dict.{language}.txt")
        for subset in corpus.subsets.values():
            prefix = corpus.bin / f"{subset}.{'-'.join(corpus.languages)}.{language}"
            counts = binarise(corpus.segmented / f"{subset}.{language}", prefix)
            sides.setdefault(subset, {})[language] = counts
    if corpus.description.pretraining:
        corpus.pretraining.mkdir()
        shutil.copyfile(dictionary, corpus.pretraining / "dict.txt")
        for subset in ("train", "valid"):
            binarise(corpus.segmented / f"{subset}.pretraining", corpus.pretraining / subset)
    return {"dictionary": len(read_dictionary(corpus.bin)), "sides": sides}


def binarise(text: Path, prefix: Path) -> dict[str, int]:
    """Binarise lines of pieces to ``prefix.bin`` and ``prefix.idx``, by the ``dict.txt`` in their folder.

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
