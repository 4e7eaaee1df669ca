"""Converts pieces to fairseq's binarised data, with a joined dictionary for both languages."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fairseq.data import Dictionary

from ..errors import UserError
from .binarised import read_dictionary, reading_dictionary
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
    languages: tuple[str, str], subsets: list[str], folder: Path, dictionary: Path, target: Path, workers: int
) -> dict[str, dict[str, dict[str, int]]]:
    """Run ``fairseq-preprocess`` on ``folder/SUBSET.LANGUAGE`` into ``target``, and read the result back.

    ``subsets`` are train, valid, test, test1, … in this order. The output is logged to
    ``target/preprocess.out``.

    Returns:
        Subset → language → the numbers of :func:`.reading_back.read_back`.
    """
    source_language, target_language = languages
    _, _, *tests = subsets
    arguments = {
        "--source-lang": source_language,
        "--target-lang": target_language,
        "--trainpref": "train",
        "--validpref": "valid",
        "--destdir": str(target.resolve()),
        "--srcdict": str(dictionary.resolve()),
        "--workers": str(workers),
    }
    if tests:
        arguments["--testpref"] = ",".join(tests)
    _run(["--joined-dictionary", *(word for pair in arguments.items() for word in pair)], folder, target)
    symbols, pair = read_dictionary(target, source_language), "-".join(languages)
    return {
        subset: {
            language: read_back(
                target / f"{subset}.{pair}.{language}", symbols, folder / f"{subset}.{language}"
            )
            for language in languages
        }
        for subset in subsets
    }


def preprocess_text(folder: Path, dictionary: Path, target: Path, workers: int) -> dict[str, dict[str, int]]:
    """Run ``fairseq-preprocess`` on the text for masked language modelling, ``folder/SUBSET.pretraining``.

    Returns:
        Subset → the numbers of :func:`.reading_back.read_back`.
    """
    flags = ["--only-source", "--trainpref", "train.pretraining", "--validpref", "valid.pretraining"]
    flags += ["--srcdict", str(dictionary.resolve()), "--destdir", str(target.resolve())]
    _run([*flags, "--workers", str(workers)], folder, target)
    with reading_dictionary(target / "dict.txt"):
        symbols = Dictionary.load(str(target / "dict.txt"))
    return {
        subset: read_back(target / subset, symbols, folder / f"{subset}.pretraining")
        for subset in ("train", "valid")
    }


def _run(flags: list[str], folder: Path, target: Path) -> None:
    command = [sys.executable, "-m", "fairseq_cli.preprocess", *flags]
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
