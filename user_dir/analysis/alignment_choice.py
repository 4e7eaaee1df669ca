"""Which head or layer of a model aligns best, found on validation and remembered beside the checkpoint."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ..corpora import Corpus
from ..corpora.checksums import sha256
from ..errors import UserError
from ..io import shown, write_json
from ..schema import read_object
from .align_split import align_split
from .split import Split, open_split

SUBSET = "valid"
SENTENCES = 1000  # of it
KEY = "alignment"
"""Where a release's checkpoint has the choice, in ``extra_state``."""

_NAME = re.compile(r"all|alignment|layer[0-9]{1,4}(-head[0-9]{1,4})?")
_GIVEN = re.compile(r"([0-9]{1,4})(?::([0-9]{1,4}))?(@input|@output)?")
_REMEDY = "remove it, so that another is written"


@dataclass(frozen=True)
class Choice:
    """One of :func:`~.alignment.candidates`, by its ``name``, and a key of :data:`~.align_split.QUERIES`."""

    name: str
    query: str

    def __str__(self) -> str:
        return f"{self.name}@{self.query}"


class _Remembered(Struct, forbid_unknown_fields=True):
    checkpoint_sha256: str
    name: str
    query: Literal["output", "input"]
    subset: str
    by: Literal["aer", "bits"]


def given(text: str) -> Choice:
    """``LAYER``, the mean of its heads, or ``LAYER:HEAD``; with ``@input``, at the step that reads a word.

    Raises:
        UserError: it is neither.
    """
    found = _GIVEN.fullmatch(text)
    if found is None:
        raise UserError(
            f"--alignment-head {shown(text)}: give LAYER or LAYER:HEAD, from 0, such as 3 or 3:0@input"
        )
    layer, head, query = found.groups()
    name = f"layer{int(layer)}" + ("" if head is None else f"-head{int(head)}")
    return Choice(name, (query or "@output").removeprefix("@"))


def place_of(checkpoint: Path) -> Path:
    """The file that remembers the choice for a checkpoint."""
    return checkpoint.parent / "alignment" / f"{checkpoint.stem}.json"


def remembered(checkpoint: Path) -> Choice | None:
    """The choice for just this checkpoint that was found before; None if there is none."""
    place = place_of(checkpoint)
    if not place.is_file():
        return None
    found = read_object(place, "the choice of a head for alignment", _Remembered, _REMEDY)
    return Choice(found["name"], found["query"]) if found["checkpoint_sha256"] == sha256(checkpoint) else None


def released(state: Mapping[str, Any]) -> Choice | None:
    """The choice that a release's checkpoint brings; None if it has none."""
    name, _, query = str((state.get("extra_state") or {}).get(KEY) or "").partition("@")
    return Choice(name, query) if _NAME.fullmatch(name) and query in ("output", "input") else None


def remember(checkpoint: Path, choice: Choice, by: str, subset: str = SUBSET) -> Path:
    """Write the choice beside the checkpoint, with what it was found by: ``aer`` or ``bits``; the file."""
    place = place_of(checkpoint)
    place.parent.mkdir(exist_ok=True)
    values = {"checkpoint_sha256": sha256(checkpoint), "name": choice.name, "query": choice.query}
    write_json(place, {**values, "subset": subset, "by": by})
    return place


def chosen(checkpoint: Path, corpus: Corpus, *, cpu: bool = False) -> Choice:
    """The remembered choice, or else the candidate whose links tell most of the target words of validation.

    It is remembered then, if the folder can be written to.

    Raises:
        UserError: the model has no context attention, or the corpus no validation split.
    """
    choice = remembered(checkpoint)
    if choice is None:
        split = open_split(checkpoint, corpus, SUBSET, sentences=SENTENCES, cpu=cpu)
        choice = best_choice(split)
        with contextlib.suppress(OSError, UserError):  # else it is found anew each time
            remember(checkpoint, choice, "bits")
    return choice


def best_choice(split: Split) -> Choice:
    """The candidate, at the step that predicts a word or that reads it, with the most ``bits``."""
    rows: list[tuple[float, Choice]] = []
    for query in ("output", "input"):
        found = align_split(
            split.model, split.samples("alignment", in_order=True), *split.pieces(), query=query
        )
        rows += [
            (row["bits"], Choice(row["name"], query))
            for row in found["candidates"]
            if row["bits"] is not None
        ]
    if not rows:
        raise UserError(
            f"{split.name} of {split.corpus.name} has no words to find the best head for alignment by"
        )
    return max(rows, key=lambda row: row[0])[1]
