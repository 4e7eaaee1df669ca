"""What is known of the rows of heads in all results: places, limits, and that no head is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..attention_types import ATTENTION_TYPES
from ..schema import TEXT, Fault, number, one_of, whole

MAX_PLACE = 9_999  # the largest number of a layer or a head
MAX_ALPHA = 1000.0  # as flags allow
TOLERANCE = 1e-4  # what float32 and rounding add to measures that have a limit
PLACE = {"attention": one_of(ATTENTION_TYPES), "layer": whole(0, MAX_PLACE), "head": whole(0, MAX_PLACE)}
ALPHA = number(1, MAX_ALPHA)
SHARE = number(0, 1, TOLERANCE)
PROVENANCE = {
    **dict.fromkeys(("checkpoint?", "corpus?", "subset?"), TEXT.or_none()),
    **dict.fromkeys(("source_lang?", "target_lang?"), TEXT.or_none()),
    "update?": whole().or_none(),
    "sentences?": whole(1),
}
"""What every result of an analysis says of the model and the split it is of."""


def shapes(rows: list[dict]) -> dict[str, tuple[int, int]]:
    """By attention type: the numbers of layers, and of heads in each, that rows of heads are of."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        layers, heads = found.get(row["attention"], (0, 0))
        found[row["attention"]] = max(layers, row["layer"] + 1), max(heads, row["head"] + 1)
    return found


def missing_heads(rows: list[dict]) -> Iterator[Fault]:
    """Heads that occur twice or not at all in rows, whose places are valid."""
    places = [(row["attention"], row["layer"], row["head"]) for row in rows]
    if not places:
        yield Fault("heads", "there are no heads")
    for place, times in Counter(places).items():
        if times > 1:
            yield Fault("heads", "{} layer {} head {} occurs twice".format(*place))
    for kind, (layers, heads) in shapes(rows).items():
        if layers * heads != sum(place[0] == kind for place in places):
            yield Fault("heads", f"{kind} lacks some of the heads of {layers} layers of {heads}")
