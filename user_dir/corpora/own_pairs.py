"""A corpus of one's own: its description and raw files from a file of pairs, or from two parallel files."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError
from ..files import DATA, OPENERS, write_text
from .corpus import Corpus, load_corpus
from .readers import read_lines

HELD_OUT = 2000  # pairs, at most about, to validate, and as many to test
LEAST = 20  # of so many pairs or more, one of each


def describe_pairs(files: list[Path], languages: list[str], name: str, data: Path | None = None) -> Corpus:
    """Copy files to ``raw`` of the corpus ``name``, and write a ``corpus.yaml`` that divides their pairs.

    Args:
        files: one of lines ``source TAB target``, or one for each language.
        languages: source, target.
        name: of the corpus.
        data: folder of the corpora; None for ``data``.

    Raises:
        UserError: there is another corpus of this name, or a name, a code or text does not do.
    """
    folder = Path(data or DATA) / name
    endings = ["tsv"] if len(files) == 1 else languages
    names = [f"{name}.{ending}" for ending in endings]
    names = [f"{own}{file.suffix if file.suffix in OPENERS else ''}" for own, file in zip(names, files)]
    train: dict[str, Any] = dict(zip(languages, names))
    if len(files) == 1:
        columns = {language: number for number, language in enumerate(languages, start=1)}
        train = {"file": names[0], "format": "columns", "columns": columns}
    one_in = max(LEAST, math.ceil(sum(1 for _ in read_lines(files[0])) / HELD_OUT))
    held_out = {"held_out": one_in}
    description = {
        "title": f"{name}, {' and '.join(file.name for file in files)}",
        "languages": languages,
        "splits": {"train": train, "valid": held_out, "test": dict(held_out)},
        "clean": {"near_duplicates": True},
    }
    path, text = folder / "corpus.yaml", yaml.safe_dump(description, sort_keys=False, allow_unicode=True)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise UserError(f"there is another corpus {path}; choose another --name")
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    for own, file in zip(names, files):
        shutil.copyfile(file, folder / "raw" / own)
    write_text(path, text)
    try:
        return load_corpus(name, data)
    except UserError:  # such as for the code of a language
        path.unlink()
        raise
