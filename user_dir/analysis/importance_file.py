"""Reads the importance of heads that ``head_importance.py`` writes, and checks all that is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from ..attention_types import ATTENTION_TYPES
from ..io import shown
from ..schema import number, read_object, require, whole
from .head_rows import TOLERANCE, Alpha, Head, Provenance, Share, missing_heads
from .head_tables import head_name

_Loss = number(0, tolerance=TOLERANCE)
_Bleu = number(0, 100, TOLERANCE)


class _Row(Head, forbid_unknown_fields=True):
    alpha: Alpha
    density: Share
    entropy: number()  # below 0 where weights exceed 1, as those of ReLA may
    loss: _Loss
    importance: number()
    bleu: _Bleu | UnsetType = UNSET


class _Curve(Struct, forbid_unknown_fields=True):
    pruned: list[whole()]
    losses: list[list[_Loss]]


class _Correlation(Struct, forbid_unknown_fields=True):
    attention: Literal[("all", *ATTENTION_TYPES)]
    measure: Literal["density", "alpha", "entropy"]
    heads: whole(1)
    spearman: number(-1, 1, TOLERANCE) | None
    p_value: number(0, 1, TOLERANCE) | None


class _Importance(Provenance, forbid_unknown_fields=True, kw_only=True):
    loss: _Loss
    heads: list[_Row]
    curves: dict[str, _Curve]
    correlations: list[_Correlation]
    bleu: _Bleu | UnsetType = UNSET
    bleu_signature: str | UnsetType = UNSET


_REMEDY = "write it again with head_importance.py, or remove it"
_WHAT = "a file of head importance"


def read_importance(path: Path) -> dict:
    """Read a file written by ``head_importance.py``; it may be compressed.

    Raises:
        UserError: it is missing, or something in it cannot be; the message names the head and the value.
    """
    found = read_object(path, _WHAT, _Importance, _REMEDY)
    for check in (_heads, _curves, _correlations):
        require(path, _WHAT, check(found), _REMEDY)
    return found


def _heads(found: dict) -> Iterator[str]:
    yield from missing_heads(found["heads"])
    for row in found["heads"]:
        if abs(row["loss"] - found["loss"] - row["importance"]) > TOLERANCE:
            name = head_name(row)
            yield (
                f"{name} has importance {row['importance']}, but losses {row['loss']} without it and "
                f"{found['loss']} with it"
            )


def _curves(found: dict) -> Iterator[str]:
    heads = len(found["heads"])
    if "importance" not in found["curves"]:
        yield "curves.importance is missing"
    for name, curve in found["curves"].items():
        place, pruned, losses = f"curves.{shown(name)}", curve["pruned"], curve["losses"]
        if not pruned or pruned[0] != 0 or pruned[-1] != heads or any(a >= b for a, b in pairwise(pruned)):
            yield f"{place}: pruned {shown(pruned)} must increase from 0 to {heads}, all heads"
        if not losses or any(len(each) != len(pruned) for each in losses):
            yield f"{place} has no losses, or not one for each of pruned {shown(pruned)}"
        for each in losses:
            if each and abs(each[0] - found["loss"]) > TOLERANCE:
                yield f"{place} begins with loss {each[0]}, not with {found['loss']}"


def _correlations(found: dict) -> Iterator[str]:
    places = [(row["attention"], row["measure"]) for row in found["correlations"]]
    for kind in ("all", *sorted({row["attention"] for row in found["heads"]})):
        for measure in ("density", "alpha"):
            if (count := places.count((kind, measure))) != 1:
                yield f"correlations has {count} of {measure}, {kind}, instead of one"
    for index, row in enumerate(found["correlations"]):
        if (row["spearman"] is None) != (row["p_value"] is None):
            yield (
                f"correlations[{index}] has spearman {row['spearman']} and p_value {row['p_value']}: "
                "both or none"
            )
