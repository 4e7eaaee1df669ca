"""The summary that ``prepare.py`` prints at its end."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from .corpus import Corpus
from .stamps import read_stamp


def summary(corpus: Corpus) -> str:
    """Describe the sizes and paths of a prepared corpus, and the next command."""
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
        f"  pieces      {_short(corpus.segmented)}, by {_short(corpus.spm_model)}",
        f"  binarised   {_short(corpus.bin)}",
        f"next: python scripts/train.py {_config(corpus)}",
    ]
    return "\n".join(rows)


def _config(corpus: Corpus) -> str:
    root = Path(__file__).resolve().parents[2]
    existing = sorted(root.glob(f"configs/{glob.escape(corpus.name)}*/alpha_entmax.yaml"))
    if existing:
        return str(existing[0].relative_to(root))
    return f"configs/{corpus.name}/alpha_entmax.yaml, written like those in configs"


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
