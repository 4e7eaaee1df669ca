"""A corpus of one's own: its description and raw files from a file of pairs, or from two parallel files."""

from __future__ import annotations

import math
from pathlib import Path

import yaml

from ..errors import UserError
from ..files import DATA, write_text
from .corpus import Corpus, load_corpus
from .readers import ONE_FILE, Source, format_of, read_pairs
from .stages import write_rows

HELD_OUT = 2000  # approximate maximum of pairs in each of valid and test
LEAST = 20  # minimum number of pairs; valid and test each get at most one in so many


def describe_pairs(
    files: list[Path], languages: tuple[str, str], name: str, data: Path | None = None
) -> Corpus:
    """Write pairs to the folder ``raw`` of the corpus ``name``, and a ``corpus.yaml`` that splits them.

    ``files``: one with lines ``source TAB target`` or in TMX, or one for each of ``languages``; the extension
    of the first implies the format. ``data``: folder of the corpora; None for ``data``.

    Raises:
        UserError: another corpus has this name, there are too few pairs, or the files or the language codes
            are invalid.
    """
    folder, form = Path(data or DATA) / name, format_of(files[0].name)
    columns = dict(zip(languages, (1, 2))) if len(files) == 1 and form not in ONE_FILE else None
    source = Source({}, "columns" if columns else form, columns=columns)
    count = sum(1 for _ in read_pairs(files, languages, source))
    if count < LEAST:
        raise UserError(f"{files[0]} has {count} pairs; {LEAST} are the least")
    held_out = {"held_out": max(LEAST, math.ceil(count / HELD_OUT))}
    description = {
        "title": name,
        "languages": list(languages),
        "splits": {"train": f"{name}.{{language}}", "valid": held_out, "test": dict(held_out)},
        "clean": {"near_duplicates": True},
    }
    path, text = folder / "corpus.yaml", yaml.safe_dump(description, sort_keys=False, allow_unicode=True)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise UserError(f"there is another corpus {path}; choose another --name, or remove it")
    raw = {(folder / "raw" / f"{name}.{language}").resolve() for language in languages}
    if raw.isdisjoint(file.resolve() for file in files):  # else they are there already
        write_rows(folder / "raw", name, languages, read_pairs(files, languages, source))
    write_text(path, text)
    try:
        return load_corpus(name, data)
    except UserError:  # such as for the code of a language
        path.unlink()
        raise
