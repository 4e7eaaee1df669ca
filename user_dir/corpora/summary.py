"""The summary that ``prepare.py`` prints at its end."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

import yaml

from .corpus import DATA, ROOT, Corpus
from .stamps import read_stamp


def summary(corpus: Corpus, notes: Iterable[str] = ()) -> str:
    """Describe the sizes and paths of a prepared corpus, and the next command; ``notes`` stand before it."""
    counts = read_stamp(corpus.folder / "text" / "stamp.json")["report"]
    size = read_stamp(corpus.folder / "spm.json")["inputs"]["vocabulary_size"]
    symbols = read_stamp(corpus.bin / "stamp.json")["report"]["dictionary"]
    source, target = corpus.languages
    rows = [f"{corpus.name} ({source}, {target}): {corpus.description.title}"]
    pieces = read_stamp(corpus.segmented / "stamp.json")["report"]
    for split, subset in corpus.subsets.items():
        name = split if split == subset else f"{split} ({subset})"
        rows.append(f"  {name:<28}{pieces[subset]['pairs']:>10,} pairs")
        dropped = {**counts[subset]["dropped"], **pieces[subset]["dropped"]}
        rows += [f"  {'':<28}{number:>10,} dropped: {reason}" for reason, number in dropped.items()]
    rows += [
        f"  {'vocabulary':<28}{size:>10,} pieces, {symbols:,} symbols in fairseq's dictionary",
        f"  raw text    {_short(corpus.folder / 'text')}",
        f"  pieces      {_short(corpus.segmented)}, by {_short(corpus.pieces)}",
        f"  binarised   {_short(corpus.bin)}",
        *_pretraining(corpus, counts),
        *(f"  {note}" for note in notes),
        f"next: {_next_command(corpus)}",
    ]
    return "\n".join(rows)


def _pretraining(corpus: Corpus, counts: dict) -> list[str]:
    if "pretraining" not in counts:
        return []
    train, valid = (f"{counts['pretraining'][subset]:,}" for subset in ("train", "valid"))
    return [f"  pretraining {_short(corpus.pretraining)}: {train} lines, {valid} for validation"]


def _next_command(corpus: Corpus) -> str:
    """The command that trains on the corpus or, if it has no configs, the one that writes them."""
    folders = [ROOT / "configs" / corpus.name, *sorted(ROOT.glob(f"configs/{glob.escape(corpus.name)}-*"))]
    named = {folder: _data(folder) for folder in folders if (folder / "alpha_entmax.yaml").is_file()}
    fitting = [folder for folder, data in named.items() if data.parts[-2:] == (corpus.name, "bin")]
    if not fitting:
        words = [_short(ROOT / "scripts/prepare.py"), corpus.name, "--config"]
        if corpus.folder.parent != DATA:
            words += ["--data", _short(corpus.folder.parent)]
    else:
        words = [_short(ROOT / "scripts/train.py"), _short(fitting[0] / "alpha_entmax.yaml")]
        if ROOT / named[fitting[0]] != corpus.bin:
            words.append(f"task.data='{corpus.bin}'")
    return shlex.join(["python", *words])


def _data(folder: Path) -> Path:
    """The binarised corpus that a folder's configs train on."""
    return Path(yaml.safe_load((folder / "base.yaml").read_text(encoding="utf-8"))["task"]["data"])


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
