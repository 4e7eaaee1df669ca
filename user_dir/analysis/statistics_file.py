"""Reads the statistics of heads that ``head_stats.py`` writes, and checks all that is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, defstruct

from ..attention_types import ATTENTION_TYPES
from ..faults import find_fault
from ..io import shown
from ..schema import number, read_object, require, whole
from .columns import COLUMNS, MASSES, PART_COLUMNS, ROW_SUMS
from .head_rows import TOLERANCE, Alpha, Head, Layer, Provenance, Share, missing_heads
from .head_tables import head_name


class _Placed(Head):
    """What must be right of a head's row before its measures can be checked."""

    alpha: Alpha


class _WithValue(Head, forbid_unknown_fields=True):
    value: number() | None


class _Role(Struct, forbid_unknown_fields=True):
    measure: str
    threshold: Share
    heads: list[_WithValue]


class _Statistics(Provenance, forbid_unknown_fields=True, kw_only=True):
    target: str | None = None
    bpe: str | None = None
    row_sums: dict[Literal[ATTENTION_TYPES], Literal[ROW_SUMS]] | UnsetType = UNSET
    heads: list[_Placed]
    layers: list[dict]
    roles: dict[str, _Role]
    measures: dict[str, str] | UnsetType = UNSET


_REMEDY = "write it again with head_stats.py"
_WHAT = "a file of head statistics"


def read_statistics(path: str | Path) -> dict:
    """Read a file written by ``head_stats.py``; it may be compressed.

    Raises:
        UserError: it is missing, or something in it cannot be; the message names the head and the value.
    """
    path = Path(path)
    statistics = read_object(path, _WHAT, _Statistics, _REMEDY)
    # In this order: later checks rely on what earlier ones have found to be so.
    for check in (_measures, _completeness, _layers, _roles):
        require(path, _WHAT, check(statistics), _REMEDY)
    for rows in (statistics["heads"], statistics["layers"]):  # α logs, and figures, go by the order
        rows.sort(key=lambda row: (ATTENTION_TYPES.index(row["attention"]), row["layer"], row.get("head", 0)))
    return statistics


def normalised_types(statistics: dict) -> set[str]:
    """The attention types whose weights sum to 1, or for fixed patterns to 0, for every query.

    Earlier versions did not write what weights sum to; what they say has α = 1 in all heads may be ReLA.
    """
    written = statistics.get("row_sums", {})
    if written:
        return {name for name, sums in written.items() if sums != "any"}
    return {row["attention"] for row in statistics["heads"] if row["alpha"] > 1}


def _measures(statistics: dict) -> Iterator[str]:
    normalised = normalised_types(statistics)
    for row in statistics["heads"]:
        yield from _faults(row, _head(row["attention"] in normalised), head_name(row))


def _faults(row: dict, kind: type, name: str) -> Iterator[str]:
    found = find_fault(row, kind)
    if found is not None:
        yield f"{name}: {found.message}"


@cache
def _head(normalised: bool) -> type:
    """The type of a head's row; shares of attention have no upper limit if it is not normalised."""
    fields = dict.fromkeys((*COLUMNS, *PART_COLUMNS), number() | None)
    fields |= dict.fromkeys(MASSES, (Share if normalised else number(0)) | None)
    fields |= dict.fromkeys(("density_of_pairs", "density_std"), Share | None)
    fields["output_norm"] = number(0) | None
    fields["entropy"] = (number(0, tolerance=TOLERANCE) if normalised else number()) | None
    optional = [(name, kind, None) for name, kind in fields.items()] + [
        ("roles", list[str] | UnsetType, UNSET)
    ]
    needed = {"alpha": Alpha, "density": Share, "density_histogram": list[whole()]}
    fields = [*needed.items(), *(field for field in optional if field[0] not in needed)]
    return defstruct("_Head", fields, bases=(Head,), forbid_unknown_fields=True, kw_only=True)


def _completeness(statistics: dict) -> Iterator[str]:
    rows = statistics["heads"]
    yield from missing_heads(rows)
    sentences = statistics.get("sentences") or (rows and sum(rows[0]["density_histogram"]))
    bins = rows and len(rows[0]["density_histogram"])
    for row in rows:
        histogram = row["density_histogram"]
        if len(histogram) != bins or sum(histogram) != sentences or not sentences:
            yield (
                f"{head_name(row)}: density_histogram counts {sum(histogram)} sentences in {len(histogram)} "
                f"bins, not {sentences} in {bins}"
            )


def _layers(statistics: dict) -> Iterator[str]:
    heads: dict[tuple, list[dict]] = {}
    for row in statistics["heads"]:
        heads.setdefault((row["attention"], row["layer"]), []).append(row)
    places, normalised = [], normalised_types(statistics)
    for index, row in enumerate(statistics["layers"]):
        place = row.get("attention"), row.get("layer")
        if not (isinstance(place[0], str) and type(place[1]) is int and place in heads) or place in places:
            yield f"layers[{index}] is of {shown(place)}: not of the heads, or there already"
            return
        places.append(place)
        yield from _layer(row, heads[place], place[0] in normalised, f"{place[0]} layer {place[1]}")
    for place in heads.keys() - places:
        yield "{} layer {} is missing".format(*place)


def _layer(row: dict, heads: list[dict], normalised: bool, place: str) -> Iterator[str]:
    wrong = list(_faults(row, _layer_type(normalised), place))
    yield from wrong
    found, expected = row.get("sorted_densities"), sorted(each["density"] for each in heads)
    if found is None or wrong:
        return
    if len(found) != len(expected) or any(abs(a - b) > TOLERANCE for a, b in zip(found, expected)):
        yield f"{place}.sorted_densities is {shown(found)}, but its heads' are {shown(expected)}"


@cache
def _layer_type(normalised: bool) -> type:
    fields = [
        ("diversity", (Share if normalised else number()) | None),
        ("union_density", Share),
        ("union_density_of_pairs", Share | None, None),
        ("sorted_densities", list[Share] | UnsetType, UNSET),
    ]
    return defstruct("_Layer", fields, bases=(Layer,), forbid_unknown_fields=True)


def _roles(statistics: dict) -> Iterator[str]:
    rows = {(row["attention"], row["layer"], row["head"]): row for row in statistics["heads"]}
    for name, role in statistics["roles"].items():
        for head in role["heads"]:
            row = rows.get((head["attention"], head["layer"], head["head"]), {})
            if row.get(role["measure"]) != head["value"]:
                yield (
                    f"the role {shown(name)} of {head_name(head)} has {role['measure']} {head['value']!r}, "
                    f"but the head has {row.get(role['measure'])!r}"
                )
