"""The summary that ``prepare.py`` prints at its end."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path

from ..files import DATA, SHARED, command_words
from .corpus import Corpus
from .stamps import read_stamp

MANY_UNKNOWN = 0.01  # share of unknown pieces, on a side of a split, above which preparing warns


def summary(corpus: Corpus, config: Path | None = None) -> str:
    """Describe the sizes and paths of a prepared corpus, and the next command: by ``config``, if given."""
    text, made = (read_stamp(corpus.folder / name / "stamp.json")["report"] for name in ("text", "bin"))
    pieces = made["pieces"]
    source, target = corpus.languages
    rows = [f"{corpus.name} ({source}, {target}): {corpus.description.title}"]
    for split, subset in corpus.subsets.items():
        name = split if split == subset else f"{split} ({subset})"
        rows.append(f"  {name:<28}{pieces[subset]['pairs']:>10,} pairs")
        dropped = Counter(text[subset]["dropped"]) + Counter(pieces[subset]["dropped"])
        rows += [f"{number:>40,} dropped: {reason}" for reason, number in dropped.items()]
        for side, counts in made["sides"][subset].items():
            share = counts["unknown"] / max(counts["pieces"], 1)
            warning = "warning: " if share > MANY_UNKNOWN else ""
            rows.append(f"{'':<41}{warning}{side}: {100 * share:.2f} % of the pieces are <unk>")
    rows += [
        f"  {made['dictionary']:,} symbols in fairseq's dictionary",
        f"  binarised in {_short(corpus.bin)}",
    ]
    for split, count in text.get("pretraining", {}).items():
        rows.append(f"  {count:,} lines in {_short(corpus.pretraining / split)}")
    command = [*command_words("train"), _short(config.resolve())] if config else _next_command(corpus)
    return "\n".join([*rows, f"next: {shlex.join(command)}"])


def _next_command(corpus: Corpus) -> list[str]:
    """The words of the command that trains with our config for the corpus or, without one, writes configs."""
    data = [] if corpus.folder.parent == DATA.resolve() else ["--data", _short(corpus.folder.parent)]
    for base in sorted(SHARED.glob("configs/*/base.yaml")):
        if f"  data: data/{corpus.name}/bin\n" in base.read_text(encoding="utf-8"):
            config = base.with_name("alpha_entmax.yaml")
            path = str(config.relative_to(SHARED))
            return [*command_words("train"), path, *([f"task.data='{corpus.bin}'"] if data else [])]
    return [*command_words("prepare"), corpus.name, "--config", *data]


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
