"""Converts pieces to fairseq's binarised data, with a joined dictionary for both languages."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError
from .binarised import load_dictionary, read_dictionary
from .reading_back import read_back
from .reserved import MULTIPLE, filler

SPECIAL = 4  # <s>, <pad>, </s> and <unk>, which fairseq adds to every dictionary


def write_dictionary(pieces: Iterable[str], segmented: Iterable[str], path: Path) -> int:
    """Write a fairseq ``dict.txt`` and return its size, including fairseq's special symbols.

    It contains every piece, sorted by its count in the segmented lines, including pieces that do not occur in
    the training text. It is padded to a multiple of 8, as by fairseq.
    """
    seen: Counter = Counter()
    for line in segmented:
        seen.update(line.split(" "))
    counts = Counter({piece: seen[piece] for piece in pieces})
    entries = [f"{piece} {count}\n" for piece, count in counts.most_common()]
    entries += [f"{filler(i)} 0\n" for i in range(-(len(entries) + SPECIAL) % MULTIPLE)]
    path.write_text("".join(entries), encoding="utf-8")
    return len(entries) + SPECIAL


def copy_dictionary(source: Path, path: Path) -> int:
    """Copy a ``dict.txt`` and return its size, including fairseq's special symbols."""
    text = source.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    return text.count("\n") + SPECIAL


def preprocess(
    parts: dict[str, tuple[str, ...]],
    subsets: list[str],
    folder: Path,
    dictionary: Path,
    target: Path,
    workers: int,
) -> dict[str, dict[str, dict[str, int]]]:
    """Run ``fairseq-preprocess`` on ``folder/SUBSET.LANGUAGE`` into ``target``, and read the result back.

    ``parts`` are what a line of each language consists of, and ``subsets`` train, valid, test, test1, … in
    this order. The output is logged to ``target/preprocess.out``.

    Returns:
        Subset → part → the numbers of :func:`.reading_back.read_back`.
    """
    languages = tuple(parts)
    train, valid, *tests = subsets
    flags = ["--source-lang", languages[0], "--target-lang", languages[1], "--joined-dictionary"]
    flags += ["--trainpref", train, "--validpref", valid, *(["--testpref", ",".join(tests)] if tests else [])]
    _run(flags, folder, dictionary, target, workers)
    symbols, pair = read_dictionary(target, languages[0]), "-".join(languages)

    def read(subset: str, language: str) -> dict[str, dict[str, int]]:
        data, pieces = target / f"{subset}.{pair}.{language}", folder / f"{subset}.{language}"
        return read_back(data, symbols, pieces, parts[language])

    return {
        subset: {part: count for each in languages for part, count in read(subset, each).items()}
        for subset in subsets
    }


def preprocess_text(folder: Path, dictionary: Path, target: Path, workers: int) -> dict[str, dict[str, int]]:
    """The same of the text for masked language modelling, ``folder/SUBSET.pretraining``; subset → numbers."""
    flags = ["--only-source", "--trainpref", "train.pretraining", "--validpref", "valid.pretraining"]
    _run(flags, folder, dictionary, target, workers)
    symbols = load_dictionary(target / "dict.txt")
    return {
        subset: read_back(target / subset, symbols, folder / f"{subset}.pretraining", ("text",))["text"]
        for subset in ("train", "valid")
    }


def _run(flags: list[str], folder: Path, dictionary: Path, target: Path, workers: int) -> None:
    command = [sys.executable, "-m", "fairseq_cli.preprocess", *flags, "--workers", str(workers)]
    command += ["--srcdict", str(dictionary.resolve()), "--destdir", str(target.resolve())]
    output = target / "preprocess.out"
    # Run in the folder itself, because --testpref would be split at a comma in its path.
    with output.open("wb") as file:
        status = subprocess.run(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT).returncode
    if status:
        lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "no output")
        raise UserError(
            f"fairseq-preprocess failed with status {status}: {last}; the command was: {' '.join(command)}"
        )
