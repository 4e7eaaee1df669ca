"""Roles of heads: a measure and the minimum value of it that a head needs to have the role."""

from __future__ import annotations

from typing import NamedTuple

from ..attention.types import ATTENTION_TYPES
from .results import head_name

_SELF = ("encoder_self", "decoder_self")


class Role(NamedTuple):
    """The definition of a role."""

    measure: str  # the column of the statistics by which heads are ranked
    threshold: float  # minimum value for the role
    attentions: tuple[str, ...] = ATTENTION_TYPES  # whose heads can have the role


# The paper speaks of positional heads from 90 % confidence, subword merging from 80 %, and interrogation from
# 97 %, in large models; the other thresholds are ours. Positional roles need self-attention, since source
# positions are not before or after a target query.
ROLES = {
    "previous position": Role("confidence_previous", 0.8, _SELF),
    "next position": Role("confidence_next", 0.8, _SELF),
    "current position": Role("confidence_current", 0.8, _SELF),
    "subword merging": Role("subword_merging", 0.8, _SELF),
    "interrogation": Role("interrogation", 0.8),
    "</s> sink": Role("eos", 0.5),
}


def assign_roles(heads: list[dict]) -> dict[str, dict]:
    """Give each row of the statistics a list ``roles``, and rank the heads for each role.

    Returns for each role its measure, threshold, and all heads for which it is defined, by descending value:
    ``{"measure": …, "threshold": …, "heads": [{"attention", "layer", "head", "value"}, …]}``.
    """
    for row in heads:
        row["roles"] = []
    ranking = {}
    for name, (measure, threshold, attentions) in ROLES.items():
        able = [row for row in heads if row["attention"] in attentions and row[measure] is not None]
        ranked = []
        for row in sorted(able, key=lambda row: -row[measure]):
            if row[measure] >= threshold:
                row["roles"].append(name)
            place = {key: row[key] for key in ("attention", "layer", "head")}
            ranked.append({**place, "value": row[measure]})
        ranking[name] = {"measure": measure, "threshold": threshold, "heads": ranked}
    return ranking


def role_table(roles: dict[str, dict], shown: int = 3) -> str:
    """As text, the heads that have each role, or the best ``shown`` if none does, with their values."""
    lines = []
    for name, role in roles.items():
        earned = [head for head in role["heads"] if head["value"] >= role["threshold"]]
        lines.append(f"{name} ({role['measure']} >= {role['threshold']:g}): {len(earned)} heads")
        heads = earned or role["heads"][:shown]
        lines += [f"  {head_name(head)}  {head['value']:.3f}" for head in heads]
    return "\n".join(lines)
