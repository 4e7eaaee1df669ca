"""Reads the importance of heads that ``head_importance.py`` writes, and checks all that is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ..attention_types import ATTENTION_TYPES
from ..io import shown
from ..schema import TEXT, Fault, number, one_of, read_object, require, whole
from .head_rows import ALPHA, PLACE, PROVENANCE, SHARE, TOLERANCE, missing_heads
from .head_tables import head_name

_LOSS = number(0, tolerance=TOLERANCE)
_FILE = {
    **PROVENANCE,
    "loss": _LOSS,
    "heads": [
        {
            **PLACE,
            "alpha": ALPHA,
            "density": SHARE,
            "entropy": number(),  # below 0 where weights exceed 1, as those of ReLA may
            "loss": _LOSS,
            "importance": number(),
            "bleu?": number(0, 100, TOLERANCE),
        }
    ],
    "curves": {
        "importance": {"pruned": [whole()], "losses": [[_LOSS]]},
        "*": {"pruned": [whole()], "losses": [[_LOSS]]},
    },
    "correlations": [
        {
            "attention": one_of(("all", *ATTENTION_TYPES)),
            "measure": one_of(("density", "alpha", "entropy")),
            "heads": whole(1),
            "spearman": number(-1, 1, TOLERANCE).or_none(),
            "p_value": number(0, 1, TOLERANCE).or_none(),
        }
    ],
    "bleu?": number(0, 100, TOLERANCE),
    "bleu_signature?": TEXT,
}
_REMEDY = "write it again with head_importance.py, or remove it"
_WHAT = "a file of head importance"


def read_importance(path: Path) -> dict:
    """Read a file written by ``head_importance.py``; it may be compressed.

    Raises:
        UserError: it is missing, or something in it cannot be; the message names the head and the value.
    """
    found = read_object(path, _WHAT, _FILE, _REMEDY)
    for check in (_heads, _curves, _correlations):
        require(path, _WHAT, check(found), _REMEDY)
    return found


def _heads(found: dict) -> Iterator[Fault]:
    yield from missing_heads(found["heads"])
    for row in found["heads"]:
        if abs(row["loss"] - found["loss"] - row["importance"]) > TOLERANCE:
            name = head_name(row)
            yield Fault(
                name,
                f"{name} has importance {row['importance']}, but losses {row['loss']} without it and "
                f"{found['loss']} with it",
            )


def _curves(found: dict) -> Iterator[Fault]:
    heads = len(found["heads"])
    for name, curve in found["curves"].items():
        place, pruned, losses = f"curves.{shown(name)}", curve["pruned"], curve["losses"]
        if not pruned or pruned[0] != 0 or pruned[-1] != heads or any(a >= b for a, b in pairwise(pruned)):
            yield Fault(place, f"{place}: pruned {shown(pruned)} must increase from 0 to {heads}, all heads")
        if not losses or any(len(each) != len(pruned) for each in losses):
            yield Fault(place, f"{place} has no losses, or not one for each of pruned {shown(pruned)}")
        for each in losses:
            if each and abs(each[0] - found["loss"]) > TOLERANCE:
                yield Fault(place, f"{place} begins with loss {each[0]}, not with {found['loss']}")


def _correlations(found: dict) -> Iterator[Fault]:
    for index, row in enumerate(found["correlations"]):
        if (row["spearman"] is None) != (row["p_value"] is None):
            yield Fault(
                "correlations",
                f"correlations[{index}] has spearman {row['spearman']} and p_value {row['p_value']}: "
                "both or none",
            )
