"""The text for masked language modelling that a corpus names under ``pretraining``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from . import parallel_text
from .corpus import Corpus
from .readers import read_lines
from .readers.left_out import BLANK
from .readers.triplets import joined, read_triplets, require_plain
from .split_sources import Source, pretraining_sources

EVERY = 100
"""Every N-th line is held out for validation."""
SUBSETS = ("train", "valid")


def write_text(corpus: Corpus, raw: Path | None, folder: Path) -> dict:
    """Write ``train.txt`` and ``valid.txt``; returns the number of lines of each, and of lines ``dropped``.

    Raises:
        UserError: a line contains a reserved symbol, or there are less than :data:`EVERY` lines.
    """
    folder.mkdir()
    counts = dict.fromkeys(SUBSETS, 0)
    dropped: Counter = Counter()
    paths = [folder / f"{subset}.txt" for subset in SUBSETS]
    with paths[0].open("w", encoding="utf-8") as most, paths[1].open("w", encoding="utf-8") as few:
        for number, line in enumerate(_lines(corpus, raw, dropped), start=1):
            held_out = number % EVERY == 0
            (few if held_out else most).write(line + "\n")
            counts["valid" if held_out else "train"] += 1
    if not counts["valid"]:
        raise corpus.description.error(
            "pretraining",
            f"pretraining: the files have {counts['train']} lines that are not empty; at least {EVERY} are "
            "needed, because every such line is held out for validation",
        )
    return {**counts, "dropped": dict(dropped)}


def _lines(corpus: Corpus, raw: Path | None, dropped: Counter) -> Iterator[str]:
    """Sentences, or ``src [SEP] mt``, without empty lines."""
    for source in pretraining_sources(corpus.description):
        paths = {side: parallel_text.path_of(corpus, name, raw) for side, name in source.names.items()}
        for line in parallel_text.within_lines(corpus, source, _read(source, paths), dropped):
            if line:
                yield line
            else:
                dropped[BLANK] += 1


def _read(source: Source, paths: dict[str, Path]) -> Iterator[str]:
    if "file" not in source.names:
        yield from (joined(*pair) for pair in read_triplets(paths["src"], paths["mt"]))
        return
    for number, line in enumerate(read_lines(paths["file"]), start=1):
        if line.strip():
            require_plain(line, f"{paths['file']}, line {number}")
        yield line.strip()
