"""The summary that ``prepare.py`` prints at its end."""

from __future__ import annotations

import glob
import os
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import yaml

from ..checkout import DATA, ROOT, SHARED, command_words
from .corpus import Corpus
from .pretraining_config import has_pretraining
from .split_sources import held_out
from .stamps import read_stamp
from .unknown_pieces import MANY_UNKNOWN, remedy, unknown_share


def summary(corpus: Corpus, notes: Iterable[str] = ()) -> str:
    """Describe the sizes and paths of a prepared corpus, and the next commands; ``notes`` stand before it."""
    text = read_stamp(corpus.folder / "text" / "stamp.json")["report"]
    pieces = read_stamp(corpus.segmented / "stamp.json")["report"]
    binarised = read_stamp(corpus.bin / "stamp.json")["report"]
    size = read_stamp(corpus.folder / "spm.json")["inputs"]["vocabulary_size"]
    source, target = corpus.languages
    rows = [f"{corpus.name} ({source}, {target}): {corpus.description.title}"]
    for split, subset in corpus.subsets.items():
        used = pieces[subset]["pairs"]
        rows.append(_row(used, "pairs", split if split == subset else f"{split} ({subset})"))
        dropped = Counter(text[subset]["dropped"]) + Counter(pieces[subset]["dropped"])
        left_out = {f"dropped: {reason}": number for reason, number in dropped.items()}
        if subset == "train" and held_out(corpus.description):
            left_out["held out for validation"] = text["valid"]["pairs"]
        rows += [_row(number, reason) for reason, number in left_out.items()]
        if left_out:
            rows.append(_row(used + sum(left_out.values()), "read"))
        rows += _read_back(corpus, (binarised.get("sides") or {}).get(subset, {}))
    rows += [
        _row(size, f"pieces, {binarised['dictionary']:,} symbols in fairseq's dictionary", "vocabulary"),
        f"  raw text    {_short(corpus.folder / 'text')}",
        f"  pieces      {_short(corpus.segmented)}, by {_short(corpus.pieces)}",
        f"  binarised   {_short(corpus.bin)}",
    ]
    if "pretraining" in text:
        counts = text["pretraining"]
        told = f"{counts['train']:,} lines, {counts['valid']:,} for validation"
        rows.append(f"  pretraining {_short(corpus.pretraining)}: {told}")
        dropped = counts.get("dropped", {})  # not in older stamps
        rows += [_row(number, f"dropped: {reason}") for reason, number in dropped.items()]
    return "\n".join([*rows, *(f"  {note}" for note in notes), *_next_commands(corpus)])


def _row(number: int, what: str, of: str = "") -> str:
    return f"  {of:<28}{number:>10,} {what}"


def _read_back(corpus: Corpus, sides: dict[str, dict[str, int]]) -> list[str]:
    """Rows on what a subset's data read back as; none for corpora prepared before that was counted."""
    if not sides:
        return []
    shares = ", ".join(f"{side} {100 * unknown_share(count):.2f} %" for side, count in sides.items())
    rows = [f"{'':<41}<unk> among the pieces: {shares}"]
    costs = [
        f"{side} {count['pieces'] / count['words']:.2f}"
        for side, count in sides.items()
        if count.get("words") and corpus.description.language_of(side).spaced
    ]
    rows += [f"{'':<41}pieces per word: {', '.join(costs)}"] if costs else []
    if max(map(unknown_share, sides.values())) > MANY_UNKNOWN:
        rows.append(f"{'':<30}warning: over {100 * MANY_UNKNOWN:g} % are unknown; {remedy(corpus)}")
    empty = ", ".join(f"{side} {count['empty']:,}" for side, count in sides.items() if count["empty"])
    return [*rows, f"{'':<30}warning: lines without a piece: {empty}"] if empty else rows


def _next_commands(corpus: Corpus) -> list[str]:
    """The commands that train on the corpus or, if it has no configs, the one that writes them, as told."""
    folders = [
        folder
        for root in dict.fromkeys((ROOT, SHARED))
        for folder in (
            root / "configs" / corpus.name,
            *sorted(root.glob(f"configs/{glob.escape(corpus.name)}-*")),
        )
    ]
    named = {folder: _data(folder) for folder in folders if (folder / "alpha_entmax.yaml").is_file()}
    fitting = [folder for folder, data in named.items() if data.parts[-2:] == (corpus.name, "bin")]
    if not fitting:
        words = [*command_words("prepare", "prepare"), corpus.name, "--config"]
        if corpus.folder.parent != DATA.resolve():
            words += ["--data", _short(corpus.folder.parent)]
        return [f"next: {shlex.join(words)}"]
    folder, elsewhere = fitting[0], (ROOT / named[fitting[0]]).absolute() != corpus.bin
    trainings = [("alpha_entmax", corpus.bin)]
    if has_pretraining(corpus) and (folder / "pretraining.yaml").is_file():
        trainings.insert(0, ("pretraining", corpus.pretraining))
    told = []
    for config, data in trainings:
        words = [*command_words("train", "train"), _short(folder / f"{config}.yaml")]
        if elsewhere:
            words.append(f"task.data='{data}'")
        told.append(f"{'then' if told else 'next'}: {shlex.join(words)}")
    return told


def _data(folder: Path) -> Path:
    """The binarised corpus that a folder's configs train on."""
    return Path(yaml.safe_load((folder / "base.yaml").read_text(encoding="utf-8"))["task"]["data"])


def _short(path: Path) -> str:
    if SHARED != ROOT and path.is_relative_to(SHARED):  # train.py finds it there
        return str(path.relative_to(SHARED))
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
