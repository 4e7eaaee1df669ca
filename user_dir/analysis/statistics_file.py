"""Reads the statistics of heads that ``head_stats.py`` writes, and checks all that is known of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ..attention_types import ATTENTION_TYPES
from ..io import shown
from ..schema import TEXT, Fault, Value, faults, number, one_of, read_object, require, whole
from .columns import COLUMNS, MASSES, PART_COLUMNS, ROW_SUMS
from .head_rows import ALPHA, PLACE, PROVENANCE, SHARE, TOLERANCE, missing_heads
from .head_tables import head_name

_ANY_OBJECT = Value("an object with named values", lambda value: isinstance(value, dict))
_FILE = {
    **PROVENANCE,
    "target?": TEXT.or_none(),
    "bpe?": TEXT.or_none(),
    "row_sums?": {f"{kind}?": one_of(ROW_SUMS) for kind in ATTENTION_TYPES},
    "heads": [_ANY_OBJECT],
    "layers": [_ANY_OBJECT],
    "roles": {"*": {"measure": TEXT, "threshold": SHARE, "heads": [{**PLACE, "value": number().or_none()}]}},
    "measures?": {"*": TEXT},
}
_REMEDY = "write it again with head_stats.py"
_WHAT = "a file of head statistics"


def read_statistics(path: str | Path) -> dict:
    """Read a file written by ``head_stats.py``; it may be compressed.

    Raises:
        UserError: it is missing, or something in it cannot be; the message names the head and the value.
    """
    path = Path(path)
    statistics = read_object(path, _WHAT, _FILE, _REMEDY)
    # In this order: later checks rely on what earlier ones have found to be so.
    for check in (_heads, _measures, _completeness, _layers, _roles):
        require(path, _WHAT, check(statistics), _REMEDY)
    return statistics


def normalised_types(statistics: dict) -> set[str]:
    """The attention types whose weights sum to 1, or for fixed patterns to 0, for every query.

    Earlier versions did not write what weights sum to; what they say has α = 1 in all heads may be ReLA.
    """
    written = statistics.get("row_sums", {})
    if written:
        return {name for name, sums in written.items() if sums != "any"}
    return {row["attention"] for row in statistics["heads"] if row["alpha"] > 1}


def _heads(statistics: dict) -> Iterator[Fault]:
    for index, row in enumerate(statistics["heads"]):
        found = {key: row[key] for key in ("alpha", *PLACE) if key in row}
        yield from faults(found, {**PLACE, "alpha": ALPHA}, f"heads[{index}]")


def _measures(statistics: dict) -> Iterator[Fault]:
    normalised = normalised_types(statistics)
    for row in statistics["heads"]:
        yield from faults(row, _head(row["attention"] in normalised), head_name(row))


@cache
def _head(normalised: bool) -> dict:
    """The description of a head's row; shares of attention have no upper limit if it is not normalised."""
    mass = SHARE if normalised else number(0)
    entropy = number(0, tolerance=TOLERANCE) if normalised else number()
    described = {f"{name}?": number().or_none() for name in (*COLUMNS, *PART_COLUMNS)}
    described |= {f"{name}?": mass.or_none() for name in MASSES}
    described |= {
        "output_norm?": number(0).or_none(),
        "entropy?": entropy.or_none(),
        "density_of_pairs?": SHARE.or_none(),
        "density_std?": SHARE.or_none(),
        "roles?": [TEXT],
        **PLACE,
        "alpha": ALPHA,
        "density": SHARE,
        "density_histogram": [whole()],
    }
    for name in ("alpha", "density", "density_histogram"):  # these must be there
        del described[f"{name}?"]
    return described


def _completeness(statistics: dict) -> Iterator[Fault]:
    rows = statistics["heads"]
    yield from missing_heads(rows)
    sentences = statistics.get("sentences") or (rows and sum(rows[0]["density_histogram"]))
    bins = rows and len(rows[0]["density_histogram"])
    for row in rows:
        histogram = row["density_histogram"]
        if len(histogram) != bins or sum(histogram) != sentences or not sentences:
            yield Fault(
                "density_histogram",
                f"{head_name(row)}: density_histogram counts {sum(histogram)} sentences in {len(histogram)} "
                f"bins, not {sentences} in {bins}",
            )


def _layers(statistics: dict) -> Iterator[Fault]:
    heads: dict[tuple, list[dict]] = {}
    for row in statistics["heads"]:
        heads.setdefault((row["attention"], row["layer"]), []).append(row)
    places, normalised = [], normalised_types(statistics)
    for index, row in enumerate(statistics["layers"]):
        place = row.get("attention"), row.get("layer")
        if not (isinstance(place[0], str) and type(place[1]) is int and place in heads) or place in places:
            yield Fault("layers", f"layers[{index}] is of {shown(place)}: not of the heads, or there already")
            return
        places.append(place)
        yield from _layer(row, heads[place], place[0] in normalised, f"{place[0]} layer {place[1]}")
    for place in heads.keys() - places:
        yield Fault("layers", "{} layer {} is missing".format(*place))


def _layer(row: dict, heads: list[dict], normalised: bool, place: str) -> Iterator[Fault]:
    described = {
        **{name: PLACE[name] for name in ("attention", "layer")},
        "diversity": (SHARE if normalised else number()).or_none(),
        "union_density": SHARE,
        "union_density_of_pairs?": SHARE.or_none(),
        "sorted_densities?": [SHARE],
    }
    wrong = list(faults(row, described, place))
    yield from wrong
    found, expected = row.get("sorted_densities"), sorted(each["density"] for each in heads)
    if found is None or wrong:
        return
    if len(found) != len(expected) or any(abs(a - b) > TOLERANCE for a, b in zip(found, expected)):
        yield Fault(
            place, f"{place}.sorted_densities is {shown(found)}, but its heads' are {shown(expected)}"
        )


def _roles(statistics: dict) -> Iterator[Fault]:
    rows = {(row["attention"], row["layer"], row["head"]): row for row in statistics["heads"]}
    for name, role in statistics["roles"].items():
        for head in role["heads"]:
            row = rows.get((head["attention"], head["layer"], head["head"]), {})
            if row.get(role["measure"]) != head["value"]:
                yield Fault(
                    "roles",
                    f"the role {shown(name)} of {head_name(head)} has {role['measure']} {head['value']!r}, "
                    f"but the head has {row.get(role['measure'])!r}",
                )
