"""Reads and validates the translations of the systems to compare, and their references."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from sacrebleu.dataset import DATASETS

from ..bounded import MAX_WHOLE
from ..checkout import ROOT
from ..corpora.readers import read_lines
from ..errors import UserError
from ..io import name_fault, packed_or_plain, parse_json, read_text, shown
from ..metrics import bleu_settings, require_known_tokenizer
from .scoring import sacrebleu_files

MAX_SENTENCES = 1_000_000  # lines of a test set
SACREBLEU = "sacrebleu's "  # before the name of one of its test sets
KEYS = ("test_set", "direction", "references", "bleu_signature")


@dataclass(frozen=True)
class System:
    """A system and its translations of the test set, one list per seed."""

    name: str
    files: tuple[Path, ...]
    translations: tuple[list[str], ...]


@dataclass(frozen=True)
class TestSet:
    """References in sacrebleu's form, and the settings that evaluate.py scored with."""

    references: list[list[str]]
    tokenize: str | None = None  # None: unknown
    lowercase: bool = False
    language: str = ""  # of the translations; empty: unknown
    files: tuple[Path, ...] = ()  # that evaluations name: translations and references

    __test__ = False  # for pytest: not a test class


def read_systems(
    named: list[tuple[str, list[Path]]], references: list[Path] | None
) -> tuple[list[System], TestSet]:
    """Read the files of all systems, one per seed, in the given order.

    Args:
        named: name and files of each system. A file is an evaluation (JSON written by evaluate.py, with the
            translations next to it) or plain text with one translation per line.
        references: plain text files; None for the references of the evaluations.

    Raises:
        UserError: a file is missing, invalid or empty, or the systems cannot be compared.
    """
    baseline, first = named[0]
    if len(named) < 2:
        raise UserError(f"{baseline} is the only system; use --system at least twice, the baseline first")
    for name, files in named:
        if len(files) != len(first):
            raise UserError(
                f"{name} has {_counted(files, 'file')} and {baseline} {_counted(first, 'file')}; pass the "
                "same number of files for each, in the order of the seeds"
            )
    read = {file: _read(file, needs_references=not references) for _, files in named for file in files}
    evaluations = {file: evaluation for file, (_, evaluation) in read.items() if evaluation is not None}
    test_set = _test_set(evaluations, references)
    for file, (translations, _) in read.items():
        _require_as_many(file, translations, test_set)
    return [
        System(name, tuple(files), tuple(read[file][0] for file in files)) for name, files in named
    ], test_set


def with_source_words(
    systems: list[System], test_set: TestSet, source: Path, at_least: int | None, at_most: int | None
) -> tuple[list[System], TestSet]:
    """The same systems on the sentences whose source has so many words, separated by spaces.

    ``source`` is a plain text file of the source sentences; None stands for any number of words.

    Raises:
        UserError: the file cannot be read or has a different number of lines, or no sentence is left.
    """
    lines = _text(source)
    _require_as_many(source, lines, test_set)
    words = [len(line.split()) for line in lines]
    kept = [
        number
        for number, found in enumerate(words)
        if (at_least is None or found >= at_least) and (at_most is None or found <= at_most)
    ]
    if not kept:
        raise UserError(
            f"no sentence of {source} has {words_phrase(at_least, at_most)}; "
            f"they have {min(words)} to {max(words)} words"
        )

    def select(texts: Sequence[list[str]]) -> list[list[str]]:
        return [[text[number] for number in kept] for text in texts]

    selected = [replace(each, translations=tuple(select(each.translations))) for each in systems]
    return selected, replace(test_set, references=select(test_set.references))


def words_phrase(at_least: int | None, at_most: int | None) -> str:
    """In words: ``13 words or more``, ``12 words or fewer``, ``5 to 12 words``."""
    if at_least is None or at_most is None:
        return f"{at_most} words or fewer" if at_least is None else f"{at_least} words or more"
    return f"{at_least} to {at_most} words"


def _test_set(evaluations: dict[Path, TestSet], references: list[Path] | None) -> TestSet:
    """The common test set of all evaluations, with the references of these files, if any are given."""
    if references:
        texts = [_text(file) for file in references]
        for file, text in zip(references, texts):
            if len(text) != len(texts[0]):
                raise UserError(f"{file} has {_counted(text, 'line')} and {references[0]} {len(texts[0])}")
    if not evaluations:
        if not references:
            raise UserError("plain text translations require --ref FILE")
        return TestSet(texts)
    first_file, first = next(iter(evaluations.items()))
    for file, each in evaluations.items():
        if not references and each.references != first.references:
            raise UserError(f"{file} and {first_file} were scored against different references")
        if each.language != first.language:
            raise UserError(
                f"{file} translates into {each.language} and {first_file} into {first.language}; compare "
                "translations into one language"
            )
        if (each.tokenize, each.lowercase) != (first.tokenize, first.lowercase):
            raise UserError(
                f"{file} was scored with {_settings(each)} and {first_file} with {_settings(first)}; "
                "evaluate both with the same settings"
            )
    files = tuple(file for each in evaluations.values() for file in each.files)
    return replace(first, references=texts if references else first.references, files=files)


def _read(file: Path, needs_references: bool) -> tuple[list[str], TestSet | None]:
    """The translations of a file and, if it is an evaluation, its test set, without references if others are
    given, since they may be missing then.
    """
    if file.suffix != ".json":
        return _text(file), None
    evaluation = _evaluation(file)
    direction = evaluation["direction"]
    language = direction.partition("-")[2]
    beside = f"{evaluation['test_set']}.{language}"
    fault = name_fault(beside, longest=255)
    if fault is not None:
        raise UserError(f"{file} is not an evaluation: the name of its translations, {shown(beside)} {fault}")
    translated = packed_or_plain(file.parent / beside)
    translations = _text(translated)
    paths = _references(file, evaluation["references"], direction) if needs_references else []
    settings = bleu_settings(evaluation["bleu_signature"])
    references = [_text(path) for path in paths]
    return translations, TestSet(references, *settings, language, (translated, *paths))


def _evaluation(file: Path) -> dict:
    """The contents of an evaluation, of which :data:`KEYS` are validated."""
    text = read_text(file, "the evaluation")
    try:
        evaluation = parse_json(text)
    except ValueError:
        evaluation = None
    known = evaluation if isinstance(evaluation, dict) else {}
    missing = [key for key in KEYS if not isinstance(known.get(key), str)]
    if missing:
        raise UserError(
            f"{file} is not an evaluation written by scripts/evaluate.py: it lacks {', '.join(missing)}"
        )
    if evaluation.get("left_out_lines"):
        raise UserError(
            f"{file} leaves out sentences (--skip-long), which would count as empty translations here; "
            "evaluate the systems with --truncate-source to compare them"
        )
    tokenizer, _ = bleu_settings(evaluation["bleu_signature"])
    if tokenizer is not None:
        require_known_tokenizer(tokenizer, f"{file}: ")
    direction, references = evaluation["direction"], evaluation["references"]
    languages = re.fullmatch(r"[A-Za-z0-9_]{1,50}-([A-Za-z0-9_]{1,50})", direction)
    if languages is None:
        raise UserError(f"{file} is not an evaluation: its direction is {shown(direction)}, not as de-en")
    if references.startswith(SACREBLEU):
        dataset = DATASETS.get(references.removeprefix(SACREBLEU))
        fits = dataset is None or direction in dataset.langpairs
    else:
        fits = Path(references).suffix in ("", f".{languages[1]}")
    if not fits:
        raise UserError(
            f"{file} has the direction {direction}, of which {shown(references)} has no references; evaluate "
            "again, or correct the file"
        )
    return evaluation


def _references(file: Path, named: str, direction: str) -> list[Path]:
    """The files of references that an evaluation names: one, or those of a sacrebleu test set."""
    theirs = sacrebleu_files(named.removeprefix(SACREBLEU), direction) if named.startswith(SACREBLEU) else {}
    paths = [path for field, path in theirs.items() if field.startswith("ref")]
    if not paths:  # in records, paths are relative to the repository
        paths = [Path(named) if Path(named).is_file() else ROOT / named]
    for path in paths:
        if not path.is_file():
            raise UserError(
                f"the references of {file} are missing: {path}; prepare the corpus, or use --ref FILE"
            )
    return paths


def _text(file: Path) -> list[str]:
    try:
        lines = list(islice(read_lines(file, most=MAX_WHOLE), MAX_SENTENCES + 1))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    if not lines:
        raise UserError(f"{file} is empty")
    if len(lines) > MAX_SENTENCES:
        raise UserError(f"{file} has more than {MAX_SENTENCES:,} lines, too many for a test set")
    return lines


def _require_as_many(file: Path, lines: list[str], test_set: TestSet) -> None:
    """Raise UserError unless a file has as many lines as the references."""
    count = len(test_set.references[0])
    if len(lines) != count:
        raise UserError(
            f"{file} has {_counted(lines, 'line')} and the references {count}; they are not of the same "
            "test set"
        )


def _counted(things: Sequence, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _settings(test_set: TestSet) -> str:
    return f"tok:{test_set.tokenize}, case:{'lc' if test_set.lowercase else 'mixed'}"
