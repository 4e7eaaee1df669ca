"""Pieces to fairseq's binarised data, with one dictionary for both languages."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError

SPECIAL = 4  # <s>, <pad>, </s> and <unk>, which fairseq adds to every dictionary
MULTIPLE = 8  # dictionary sizes that tensor cores like


def write_dictionary(pieces: Iterable[str], segmented: Iterable[str], path: Path) -> int:
    """Write a fairseq ``dict.txt`` and return its size, fairseq's special symbols included.

    It holds every piece, the most frequent one first, with its count in the segmented lines, so that a piece
    which the training text never needed still has an id. It is filled up to a multiple of 8, as fairseq does.
    """
    seen: Counter = Counter()
    for line in segmented:
        seen.update(line.split(" "))
    counts = Counter({piece: seen[piece] for piece in pieces})
    entries = [f"{piece} {count}\n" for piece, count in counts.most_common()]
    entries += [f"madeupword{i:04} 0\n" for i in range(-(len(entries) + SPECIAL) % MULTIPLE)]
    path.write_text("".join(entries), encoding="utf-8")
    return len(entries) + SPECIAL


def preprocess(
    languages: tuple[str, str], subsets: list[str], folder: Path, dictionary: Path, target: Path, workers: int
) -> None:
    """Run ``fairseq-preprocess`` on ``folder/SUBSET.LANGUAGE`` into ``target``.

    ``subsets`` are train, valid, test, test1, … in this order. Its output goes to ``target/preprocess.out``.
    """
    source_language, target_language = languages
    _, _, *tests = subsets
    arguments = {
        "--source-lang": source_language,
        "--target-lang": target_language,
        "--trainpref": "train",
        "--validpref": "valid",
        "--testpref": ",".join(tests),
        "--destdir": str(target.resolve()),
        "--srcdict": str(dictionary.resolve()),
        "--workers": str(workers),
    }
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--joined-dictionary"]
    command += [word for pair in arguments.items() for word in pair]
    output = target / "preprocess.out"
    # In the folder itself, since a comma in its path would part the names given to --testpref.
    with output.open("wb") as file:
        status = subprocess.run(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT).returncode
    if status:
        lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        raise UserError(
            f"fairseq-preprocess failed with status {status}: {last}; its command: {' '.join(command)}"
        )
