"""What is known of the rows of heads in all results: places, limits, and that no head is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from ..attention_types import ATTENTION_TYPES
from ..schema import number, whole

MAX_PLACE = 9_999  # the largest number of a layer or a head
MAX_ALPHA = 1000.0  # as flags allow
TOLERANCE = 1e-4  # what float32 and rounding add to measures that have a limit
AttentionType = Literal[ATTENTION_TYPES]
Alpha = number(1, MAX_ALPHA)
Share = number(0, 1, TOLERANCE)


class Layer(Struct):
    """Where a layer is."""

    attention: AttentionType
    layer: whole(0, MAX_PLACE)


class Head(Layer):
    """Where a head is."""

    head: whole(0, MAX_PLACE)


class Provenance(Struct, kw_only=True):
    """What every result of an analysis says of the model and the split it is of."""

    checkpoint: str | None = None
    corpus: str | None = None
    subset: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    update: whole() | None = None
    averaged: list[whole()] | None = None
    sentences: whole(1) | UnsetType = UNSET


def shapes(rows: list[dict]) -> dict[str, tuple[int, int]]:
    """By attention type: the numbers of layers, and of heads in each, that rows of heads are of."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        layers, heads = found.get(row["attention"], (0, 0))
        found[row["attention"]] = max(layers, row["layer"] + 1), max(heads, row["head"] + 1)
    return found


def missing_heads(rows: list[dict]) -> Iterator[str]:
    """Heads that occur twice or not at all in rows, whose places are valid."""
    places = [(row["attention"], row["layer"], row["head"]) for row in rows]
    if not places:
        yield "there are no heads"
    for place, times in Counter(places).items():
        if times > 1:
            yield "{} layer {} head {} occurs twice".format(*place)
    for kind, (layers, heads) in shapes(rows).items():
        if layers * heads != sum(place[0] == kind for place in places):
            yield f"{kind} lacks some of the heads of {layers} layers of {heads}"
